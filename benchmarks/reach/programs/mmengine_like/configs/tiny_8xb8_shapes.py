_base_ = ["./_base_/default_runtime.py"]

model = dict(
    type="Classifier",
    backbone=dict(type="TinyNet", depth=3, base_channels=16),
    head=dict(type="LinearClsHead", num_classes=6, in_channels=64),
)

train_pipeline = [
    dict(type="DrawShape", scale=96),
    dict(type="RandomFlip", prob=0.5),
    dict(type="Resize", scale=32),
    dict(type="PackInputs"),
]
train_dataloader = dict(
    batch_size=8,
    num_workers=0,
    persistent_workers=False,
    sampler=dict(type="DefaultSampler", shuffle=True),
    dataset=dict(type="Shapes", length=12000, pipeline=train_pipeline),
)

optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=dict(type="SGD", lr=0.02, momentum=0.9, weight_decay=0.0001),
    accumulative_counts=2,
)

train_cfg = dict(by_epoch=True, max_epochs=100)
# base_batch_size = (8 GPUs) x (8 samples per GPU)
auto_scale_lr = dict(enable=False, base_batch_size=64)

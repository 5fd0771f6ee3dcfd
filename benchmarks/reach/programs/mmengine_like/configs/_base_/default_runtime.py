default_hooks = dict(
    logger=dict(type="LoggerHook", interval=50), checkpoint=dict(type="CheckpointHook", interval=1)
)
log_level = "INFO"
load_from = None
work_dir = "work_dirs"

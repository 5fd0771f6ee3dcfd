"""Predictions against published and recorded figures.

    python -m benchmarks.prediction images TABLE.csv --card rtx-3090 [--models 60] [--fitted 5]
    python -m benchmarks.prediction transfer TABLE.csv --card rtx-4090 --source-table OTHER.csv
        --source rtx-3090 [--models 60]
    python -m benchmarks.prediction language TABLE.csv
    python -m benchmarks.prediction fits TABLE.csv [--models 200]
    python -m benchmarks.prediction programs

images, transfer, fits   result files of pytorch-image-models (AMP, channels last; `pip install
                         timm` brings the models): speed, speed from another card, memory
language                 NeuSight's summary.csv (float32), or llm-foundry's table of an A100
programs                 peaks of 30 small programs against torch's own MemTracker

Steps are traced by the recorder's own mode. Tensors have no data, but for `programs`.
"""

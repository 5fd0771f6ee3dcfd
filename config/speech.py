"""Settings of the speech encoder, read by benchmarks/workloads/speech/train.py."""


class Config:
    # data
    UTTERANCES = 640
    FEATURES = 64
    SEED = 7

    # model
    CHANNELS = 48
    HIDDEN = 64
    EMOTIONS = 6

    # training
    EPOCHS = 20
    BATCH_SIZE = 16
    LEARNING_RATE = 1e-3

    # speed
    NUM_WORKERS = 0
    PREFETCH_FACTOR = None  # of each worker
    PIN_MEMORY = False
    USE_AMP = False
    CUDNN_BENCHMARK = False

    OUTPUT_DIR = "experiments/speech"

"""absl: flags of a training whose update is made of many small batches."""

from absl import app, flags
from body import train

FLAGS = flags.FLAGS
flags.DEFINE_integer("batch_size", 2, "samples of one batch")
flags.DEFINE_integer("grad_accum_steps", 16, "batches of one update")
flags.DEFINE_integer("num_workers", 2, "processes that load")


def main(_):
    train(FLAGS.batch_size, FLAGS.num_workers, FLAGS.grad_accum_steps, load_s=0.0005)


if __name__ == "__main__":
    app.run(main)

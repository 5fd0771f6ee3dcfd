# train a miniature model, good for debugging on laptops

out_dir = "out-small"
eval_interval = 250  # keep frequent because we'll overfit
eval_iters = 20
log_interval = 10  # don't print too too often

gradient_accumulation_steps = 4
batch_size = 4
block_size = 64  # context of up to 64 previous characters

# baby GPT model :)
n_layer = 3
n_head = 4
n_embd = 64
dropout = 0.0

learning_rate = 1e-3  # with baby networks can afford to go a bit higher
max_iters = 20000
lr_decay_iters = 20000  # make equal to max_iters usually
min_lr = 1e-4
beta2 = 0.99

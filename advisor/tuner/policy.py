"""The numbers of a search, each with its unit, its meaning and what chose it.

Where no record is named, a number is judgement. `python -m benchmarks.search_quality` tells what a
change of one costs: share of the optimum, and processes, over 200 programs that are formulas.
`optimize --debug` prints them all.

Not here: the grids of `throughput_model`, which are that model, and seeds.
"""


def listed() -> str:
    """Every number by its name, in the order of this page, a line each."""
    numbers = ((name, value) for name, value in globals().items() if name.isupper())
    return "".join(f"{name} = {value}\n" for name, value in numbers)


# Windows

MIN_STEPS = 8
"""Steps that a window has at least: of fewer one slow step moves the rate, and each step more makes
the windows of large batches dearer. Judgement."""
CEILINGS_S = 1.0
"""Seconds for which a baseline measures each part alone."""
ENDING_S = 1.0
"""Seconds from a window's end to that of its process, where no diagnostics follow.

What a baseline takes beyond this after its window is left out of the price. Judgement: too small
prices processes below what they take, too large charges each of them for the diagnostics."""
FOLLOWING_WINDOW_S = 1.0
"""Seconds of the window of a run that only shows which settings the program follows."""
FOLLOWING_STEPS = 4
"""Steps of that window.

Judgement: fewer do not show the batch that most steps have, more lengthen runs that measure
nothing."""
FOLLOWING_STEP_S = 8.0
"""Seconds that a run for that purpose may step, where the original did not step for longer.

By judgement; a power of two, as the limit is rounded up to one, so that the next call finds the
run in its history."""

# What is worth a trial

MIN_WAIT_SHARE = 0.03
"""Share of time in waits for data, or in copies to a card, up to which no loader setting is tried.

To end a wait of 3 % gains 3 %, and less than that is not written by default (`smallest_gain`).

Judgement: smaller spends processes on gains that are not written, larger leaves out some that are.
"""
MOST_WAIT_SHARE = 0.5
"""Share of time in waits for data from which one run checks what the loader alone said of workers.

It runs alone for a second or two, once. On a machine whose hypervisor gave a tenth of the CPUs to
others it said that two workers load no faster than none: a program that waited for nine tenths of
its time kept none, with two thirds of the budget unspent. Judgement."""
WORTH_GROUPING = 0.1
"""Share of padded positions from which batches of like lengths gain enough for a trial.

Judgement: where compute follows the positions, a tenth of them less gains 1.11x."""
MAX_TIE = 0.15
"""Widest tie, as a relative difference: with a wider one the search would see no gain at all.

Judgement: on a noisier host a chance difference may lead the search, and the proof refuses it."""

# Rounds

FEWEST_ROUNDS = 2
"""Rounds without which there is no interval.

Source: a spread, and so an interval of Student's or Welch's, needs two runs a side."""
GATED_ROUNDS = 3
"""Rounds kept for a candidate on top of a proven one, where a whole proof would keep more.

Judgement: more would leave a precision or fewer steps no time for the runs that judge them."""
GOOD_ROUNDS = 4
"""Rounds from which Welch's bounds, which fewer than six have, are narrow enough.

Record: benchmarks/results/bounds.md: on a noisy host four prove 1.3x in 84 to 92 % of calls, three
in 54 to 76 %."""
MOST_RESERVED = 6
"""Rounds kept for the confirmation: the fewest with exact bounds (`stats.FEWEST_PAIRS`)."""
MANY_TIMES = 4.0
"""Ratio of sampling steps whose gain two rounds prove: ln 4 is 1.39.

Of two rounds in which one arm's runs differ by a tenth, the lower bound lies 0.77 below the
estimate (`stats.comparison_interval`). Judgement."""

# What processes cost

SEARCH_PROCESSES = 5
"""Short processes of a usual search of batch and workers.

`python -m benchmarks.search_quality`, benchmarks/results/tables-cpu2.md: 7.0 with the baselines, of
200 programs whose processes differ by 2 %."""
JUDGING_PROCESSES = 15
"""Processes that a search of free settings leaves to sampling steps, where the budget holds both.

Counted as three of the reference, two rungs, their other seeds, two pairs that confirm, and rounds
of the proof. The reference takes two since, and four pairs confirm; the sum was not counted again.
Steps gain most of all, and a search on a busy machine went on for thirteen processes of its own and
left none of five minutes for them."""
COLD_START = 2.0
"""A process slower than twice the fastest is left out of the price: a cold start, or long steps.

Judgement: a smaller factor leaves out what ordinary load costs, a larger one lets a first run that
filled caches price all others."""
RECENT_PROCESSES = 8
"""Latest processes, whose upper quartile of delays tells how long other programs delay one now.

Judgement. In 120 simulated searches beside others the time kept for a proof was the same without
it, as the simulation's price holds the delay already; it was put in beside a real neighbour."""
ROUND_FACTOR = 1.1
"""Planned over measured seconds of a round: processes differ, and a proof must not be cut off."""
NAMED_BUDGET_FACTOR = 1.2
"""A budget that is named is 1.2 times the estimate, so that the next call surely fits."""

# Baselines and sampling steps

SECOND_BASELINE_PROCESSES = 8
"""Processes in the rest of the budget below which there is no second baseline.

Judgement: the proof runs the original again anyhow."""
FIRST_ITEM_SHARE = 0.1
"""Share of the budget in which a sampler has to finish its first item; judgement."""
MOST_BASELINES = 3
"""Most baselines: the third only where two disagree."""
STEP_SHARES = (0.5, 0.25, 0.1, 0.05, 0.025, 0.01)
"""Shares of the original sampling steps to try: each about half of the one before.

Judgement: finer shares would cost more pairs of quality runs than their gain is worth."""
FEWEST_SAMPLING_STEPS = 10
"""Sampling steps of the run that only counts the forwards of an item; judgement."""
FEWEST_SAMPLING_STEPS_S = 1.0
"""Seconds that such a run is planned for: no process of the program has ended yet. Judgement."""
FOLLOWING_PROCESSES = 2
"""Processes that show which settings the program follows, beside those the search needs."""

# How long a run is

SHORT_RUN_UPDATES = 4
"""Updates of the short run, if its length counts batches.

Judgement: fewer are no window to measure in, more lengthen a run that measures nothing."""
LONG_WINDOW_UPDATES = 8
"""Updates of a window that holds more than that.

Twice them, which a length in updates allows even with an accumulation of two, the least. Judgement:
fewer end the run while it may still count batches, more only lengthen it."""

# The search of batch and workers

MOST_DOUBLINGS = 10
"""Largest batch of a search: 2**10 times the config's.

Judgement: memory or data end nearly every search before. Fewer stop short where the config has a
batch of 1, more widen the grid for nothing."""
LARGEST_LEAP = 8
"""Largest growth of the batch at once, over the largest that ran: memory is only known so far.

Judgement: a smaller leap takes more processes to a large batch, a larger one runs out of memory."""
LEAST_LOG_GAIN = 0.009
"""A smaller expected log gain ends the search, and rates so close tie.

Record: benchmarks/results/tables-cpu2.md, first table: 99.5 % of the optimum, and 97.1 % in the
worst tenth, in 7.0 processes. With 0.01, earlier that day, the worst tenth had 96.9 % in 6.7."""
DEAREST_WINDOW = 4.0
"""Times the time of a usual process that a large batch's window may take; judgement."""
ROOM_TO_LEARN = 4
"""Trials beside the proof from which the first one moves one knob alone.

Of 60 programs of random costs in four minutes, both at once gained more at 20 s a process (three
trials), and no less was gained by one alone at 6 to 16 s."""
FEWEST_STEPS_A_PASS = 4
"""Steps that a training's batch must leave of a pass over the data.

Judgement: fewer let a pass be one or two steps, more forbid batches of small data that still
train."""

# Workers that sleep

WORKERS_A_CPU = (2, 4, 8)
"""Counts to run alone, in CPUs: eight times as many cost a start of seconds.

Record: benchmarks/results/same-work-cpu2.md: on two CPUs 16 workers, the most that this allows,
were written for most loaders that sleep. So more might gain still; that eight suffice is judgement.
"""
MOST_WORKERS = 64
"""Workers of one process; beyond, its own thread that collects their batches is the limit.

Judgement: no record has more than 16."""
WORKERS_MEMORY_SHARE = 0.5
"""Most of the host's memory, or of the free room in /dev/shm, that workers may take.

Judgement: the program and its batches need the rest, and a full /dev/shm kills a worker."""

# Values tried in turn

GATED_PROCESSES = 4.0
"""Processes that compare a gated value's results: two pairs.

Judgement: fewer name the user a budget that cannot confirm the value, more name one that it does
not need."""
WORTH_COMPUTE_SHARE = 0.3
"""Share of time in model calls from which faster calls gain enough; judgement."""
MOST_STEP_COUNTS = 2
"""Step counts that may be confirmed: each may pass by luck."""

# Switches of torch

LAUNCH_BOUND_SHARE = 0.2
"""Share of time in kernel launches from which CUDA graphs come first; judgement."""

# The proof

LARGE_GAIN, ROUNDS_OF_LARGE_GAINS = 1.5, 8
"""A gain from which so many rounds are the most, however noisy the original: the rest of the budget
is worth more elsewhere. Judgement."""
MOST_ROUNDS = 20
"""Most rounds: more narrow the bounds too slowly to pay. Judgement."""
VALIDATION_FACTOR = 1.5
"""Time that a check of memory gives a pass with validation, over that of its training steps.

Judgement: too small ends the check before the validation, and the report says that none was seen;
too large keeps budget from what else would run."""

# Quality within a tolerance

QUALITY_RUN_PROCESSES = 3.0
"""Short processes that a quality run is assumed to take, before one was seen; judgement."""
REFERENCE_RUNS = 2
"""Seeds of the reference: the fewest that show what a seed changes.

With three, and as few as two pairs that confirm, a candidate far inside its tolerance took a pair
more and failed in 5 to 8 % of calls: two pairs have Student's bound of 12.7.
"""
GOOD_QUALITY_PAIRS = 4
"""Fewest pairs that are planned to confirm a candidate.

Two seeds tell the spread roughly. Where it is a third of the tolerance, four confirming pairs are
inside in 93 % of calls and take 6.8 pairs in all; three seeds with two pairs or more: 89 % and 7.8.
Simulated with normal losses; of a spread of half the tolerance 65 % and 6.5, against 68 % and 8.1.
Five pairs or more are inside in 95 % of the first, and take 7.4.
"""
MOST_QUALITY_PAIRS = 12
"""Most runs a side that may confirm a candidate: more would cost more than it gains. Judgement."""
FEWEST_QUALITY_PAIRS = 3
"""Pairs that are tried where the budget holds no more.

Student's bound at `stats.ALPHA` lies 9.0 times the spread of two pairs from their mean, and 2.5
times that of three, so that two hardly ever confirm."""
CHECK_SHARE = 0.25
"""Part of the remaining budget for the original beside the best free candidate; judgement."""

# Results that a run left

FEWEST_FILES_SHARE = 0.5
"""Least share of expected files or items: the last may be on their way.

Judgement: larger refuses a batch for files that a writer still holds, smaller lets one pass that
loses more than half."""
FILES_AN_ITEM = 0.5
"""Files, or entries of one, an item, from which results grow with items.

Judgement: smaller takes a log or checkpoint for results, larger misses programs that write one file
for two items."""
ENOUGH_FILES = 4.0
"""Fewest expected files or items whose number tells anything.

Judgement: of two, one that is late is half of them already. Larger leaves the results of slow
programs unchecked."""
UNFLUSHED_BYTES = 16384
"""Bytes of a file that may stay unflushed at the end: two buffers of a file in Python 3.11.

Judgement: too small refuses a batch for results on their way, too large hides some that are lost.
"""
ROUNDING_RELATIVE, ROUNDING_ABSOLUTE = 1e-2, 1e-3
"""Numbers in a program's result files that differ by no more are equal but for rounding.

Judgement: too small refuses a batch whose kernels add in another order, too large takes other
results for the same."""
STRAY_SAMPLES_SHARE = 0.05
"""Share of a picture's samples that rounding may move across a threshold; judgement."""

# Is it the same work?

SAMPLES_TIE = 0.02
"""Relative difference of samples, of an update or a pass, that is none; of its weights, too.

Judgement: smaller refuses an average that a last, shorter batch moved, larger hides one sample of
32 that is left out."""
REPEATING_BELOW = 0.85
"""Share of different items below which items repeat: two workers that yield the same give 0.5,
and draws with replacement vary by a few percent. Record: benchmarks/results/same-work-cpu2.md,
where harmful programs gave 0.55 and 0.75."""
DRAWN_REPEATING_BELOW = 0.75
"""Share below which items repeat where the original's own do, as by draws with replacement."""
ALL_DIFFERENT_FROM, FEW_KINDS = 0.9, 64
"""Share of different items of an original that repeats none, and items below which it is chance
how many kinds of a few came."""
REPEATS_TOLD_FROM = 3
"""Powers of two from which repeats are told: 8 items.

Judgement, by `REPEATING_BELOW`: of four items one repeat by chance is refused (0.75), of eight only
two are. A higher power leaves short trials unchecked."""
FEWEST_OF_A_PASS = 4
"""Items from which two passes are told apart.

Judgement: shuffled passes of three begin alike once in six times, and more leaves tiny data
unchecked."""
FEWER_ITEMS_TIE = 0.1
"""Share of a pass's items, by the length of its loader, that a batch of uneven size explains.

Judgement. Record: benchmarks/results/same-work-cpu2.md, where groups that drop their rest lost
39 %."""
MORE_ITEMS = 1.5
"""Ratio of a pass's items, by the length of its loader, from which it has more: batches by tokens
are of uneven size, and the first of them tell their mean. Judgement."""
NEARER = 0.6
"""Ratio of the spread of an update's indices below which they lie side by side: among 32 of a pass
in random order it is nearly that of all, among those of one part in eight an eighth. Judgement."""
DISTANCE_TIE, FEWEST_DISTANCES = 1.6, 2
"""Ratio of how far an average of the weights moves that draws explain, and updates that are needed:
a decay that follows the batch moves it by the ratio of the batches. Judgement."""
SCHEDULE_TIE = 0.02
"""Relative difference of how far a schedule has moved that rounding explains: one update more or
less in a pass of 50, as `len(loader) // accumulation` gives. One that counts batches moves at
least twice as far."""
FROM_NOTHING = 1.5
"""A second rate this many times the first is of a warm-up from 0: it moved by its whole rate.

Judgement: between 2, of a line from 0, and 1.4, of torch's `LinearLR` by its defaults. Larger
misses the first, smaller takes the second for it."""
RATE_TIE = 1e-9
"""Relative difference of learning rates, which equal code computes to the last digit.

A line over 10 million steps has moved by 4e-7 at the fifth, a cosine by 1.6e-9 at the 256th, the
last one that is kept.

Judgement: larger hides a schedule that has moved as little, and smaller tells apart sums added in
another order."""
FEWEST_UPDATES = 3
"""Updates whose losses are compared at least: fewer tell no spread.

Judgement: more leave a short trial's losses uncompared."""
UPDATES_OF_PASS_TIE = 0.05
"""Updates of a pass are as many within this share: what fills no update is carried on, or not.

Judgement: in a pass of 20 updates or more, one more is none."""
FILES_OF_BATCH_TIE = 0.2
"""Files of a batch are as many within this share, as a window cuts one at each end."""
GRADIENT_TIE, SUMS_TIE = 1.5, 0.5
"""Gradients of other samples differ in length by less; and their losses, as a share.

Judgement. Record: benchmarks/results/same-work-cpu2.md, `free_gradients_divided_at_the_update`,
which was refused before the rule that they serve."""
LOSS_TIE, LOSS_SIGMAS = 0.1, 3.0
"""Losses of updates that differ by less are one: relative, and in standard errors.

Judgement: of three updates equal losses pass three standard errors in 10 % of runs, and of eight in
2 %. Then a tenth of the loss still has to be passed."""
ROWS_TIE = 0.05
"""Share by which the rows of an update differ, as where a last batch is smaller.

Judgement. Record: benchmarks/results/same-work-cpu2.md, where rows of a memory beside each batch
were 160 an update and became 40, far beyond any tie."""
UNTRAINED_TIE = 0.05
"""Batches left out, as a share of all: fewer are of chance, or were loaded ahead.

Record: benchmarks/results/same-work-cpu2.md: `bad_items_lose_their_batch` left out 20 % where it
had been 1.7 %."""
FEWER_CALLS_TIE = 0.1
"""Share of fewer calls in generations that other prompts explain; judgement."""
SAME_GRADIENT_TIE = 0.25
"""Relative difference of gradients of the same items that rounding explains, and a mean over nearly
as many items or tokens in each batch.

Record: benchmarks/results/same-work-cpu2.md: means over the tokens of batches of 2 and of 32 gave
0.41 and are refused. Of experts whose balance weighs 1 % of the loss they gave 0.004, unseen."""
EQUAL_RUNS_TIE, SAME_ITEMS_TIE = 1e-4, 0.03
"""Relative difference of losses of equal runs, by rounding; and of the same items in other batches,
where each is a mean over its tokens or masked items, whose weights follow the batch a little.

Record: benchmarks/results/same-work-cpu2.md, where harmful losses of the same items differed by
12 % and 16 %. Where between them and rounding 3 % lies is judgement."""
RESULT_NUMBERS = 64
"""Numbers kept of a result: of a longer one only some, at places that follow its length."""
KEPT_IF_QUICKER, WORTH_KEEPING_MS = 3.0, 1.0
"""An item that is so many times as quick when it is asked for again was kept; quicker ones than
this are not worth a cache.

Judgement. Record: benchmarks/results/same-work-cpu2.md, `cache_in_a_librarys_memory`, a cache that
no attribute shows."""
ONE_CALL_TIE = 0.1
"""Difference from one forward of an item that incomplete batches explain."""
RESULT_TIE, RESULT_LEAST = 0.02, 1e-3
"""Largest difference by rounding, over the largest number of the result; and in any case."""

# A program that finishes no item

BUDGETS_FOR_AN_ITEM = 5.0
"""Recommended budgets for a program that finished no item within one.

Judgement: all that is known of such a program is that one budget is too little."""

"""Intervals, paired and sequential tests, false discovery and power: arrays in, plain results out."""

from refork.stats.bootstrap import paired_bootstrap
from refork.stats.clustered import clustered_difference, clustered_mean, macro_mean
from refork.stats.difference import paired_difference, unpaired_difference
from refork.stats.means import mean_interval, paired_t, welch
from refork.stats.multiple import Adjusted, benjamini_hochberg, holm
from refork.stats.power import paired_draws, paired_power, unpaired_draws, unpaired_power
from refork.stats.proportions import clopper_pearson, newcombe, newcombe_paired, tango, wilson
from refork.stats.ranking import auroc
from refork.stats.results import Difference, Interval, Test
from refork.stats.sequential import anytime_test, confidence_sequence, mean_sequence
from refork.stats.signed_rank import wilcoxon
from refork.stats.tables import cochran_armitage, fisher, mcnemar
from refork.stats.unbiased import outcome_variance, pass_at_k

__all__ = [
    "Adjusted",
    "Difference",
    "Interval",
    "Test",
    "anytime_test",
    "auroc",
    "benjamini_hochberg",
    "clopper_pearson",
    "clustered_difference",
    "clustered_mean",
    "cochran_armitage",
    "confidence_sequence",
    "fisher",
    "holm",
    "macro_mean",
    "mcnemar",
    "mean_interval",
    "mean_sequence",
    "newcombe",
    "newcombe_paired",
    "outcome_variance",
    "paired_bootstrap",
    "paired_difference",
    "paired_draws",
    "paired_power",
    "paired_t",
    "pass_at_k",
    "tango",
    "unpaired_difference",
    "unpaired_draws",
    "unpaired_power",
    "welch",
    "wilcoxon",
    "wilson",
]

"""Intervals, paired and sequential tests, false discovery and power: arrays in, plain results out."""

from ramify.core.stats.bootstrap import paired_bootstrap
from ramify.core.stats.clustered import clustered_difference, clustered_mean, macro_mean
from ramify.core.stats.difference import paired_difference, unpaired_difference
from ramify.core.stats.means import mean_interval, paired_t, welch
from ramify.core.stats.multiple import Adjusted, benjamini_hochberg, holm
from ramify.core.stats.power import paired_draws, paired_power, unpaired_draws, unpaired_power
from ramify.core.stats.proportions import clopper_pearson, newcombe, newcombe_paired, tango, wilson
from ramify.core.stats.ranking import auroc
from ramify.core.stats.results import Difference, Interval, Test
from ramify.core.stats.sequential import anytime_test, confidence_sequence, mean_sequence
from ramify.core.stats.signed_rank import wilcoxon
from ramify.core.stats.tables import cochran_armitage, fisher, mcnemar
from ramify.core.stats.unbiased import outcome_variance, pass_at_k

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

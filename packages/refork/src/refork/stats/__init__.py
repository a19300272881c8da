"""Intervals, paired and sequential tests, false discovery and power: arrays in, plain results out."""

from refork.core.stats.bootstrap import paired_bootstrap
from refork.core.stats.clustered import clustered_difference, clustered_mean, macro_mean
from refork.core.stats.difference import paired_difference, unpaired_difference
from refork.core.stats.means import mean_interval, paired_t, welch
from refork.core.stats.multiple import Adjusted, benjamini_hochberg, holm
from refork.core.stats.power import paired_draws, paired_power, unpaired_draws, unpaired_power
from refork.core.stats.proportions import clopper_pearson, newcombe, newcombe_paired, tango, wilson
from refork.core.stats.ranking import auroc
from refork.core.stats.results import Difference, Interval, Test
from refork.core.stats.sequential import anytime_test, confidence_sequence, mean_sequence
from refork.core.stats.signed_rank import wilcoxon
from refork.core.stats.tables import cochran_armitage, fisher, mcnemar
from refork.core.stats.unbiased import outcome_variance, pass_at_k

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

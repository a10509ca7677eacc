"""Forests of boosted trees: the model, how it is grown by sums of histograms, what is kept of the samples."""

"""A method, a data set, a model and a metric for Covey, from outside."""

"""Experiments that are not plain runs (data-level tables, attacks, curves): one module a paper, one function a study.

A study is called with its settings and a seed and returns a `experiments.spec.Findings`.
"""

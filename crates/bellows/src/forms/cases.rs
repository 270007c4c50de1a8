//! The cases of benchmarks, and the labels of their figures.

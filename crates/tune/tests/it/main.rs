//! The search from outside: studies on every storage, and the estimator against Optuna's own.

mod study;
mod tpe_goldens;

//! Why an executor refuses something, whatever device is behind it.

use plimsoll_base::explain::{DEFECT, Explain, Fault};
use std::fmt::Debug;
use std::sync::Arc;
use thiserror::Error;

/// What a device's own errors are to everybody else: words, whose fault it is, and a way out.
pub trait DeviceFailure: Explain + Debug + Send + Sync {}
impl<E: Explain + Debug + Send + Sync> DeviceFailure for E {}

/// Nothing was written where one of these is returned. The first three are never the user's doing: a program was asked for
/// what it does not have, and would otherwise go on with zeros.
#[derive(Clone, Debug, Error)]
pub enum ExecError {
    #[error("phase {phase} has no input {name}")]
    NoInput { phase: usize, name: String },
    #[error("the program has no resident {name}")]
    NoResident { name: String },
    #[error("{name} has {there} bytes, and {given} were given for it from byte {offset} on")]
    Size { name: String, there: usize, given: usize, offset: usize },
    #[error("{0}")]
    Device(Arc<dyn DeviceFailure>),
}

impl ExecError {
    /// What went wrong on the device.
    pub fn device(failure: impl DeviceFailure + 'static) -> ExecError {
        ExecError::Device(Arc::new(failure))
    }

    /// Whether `given` bytes are all of the `there` that `name` has.
    pub fn check_size(name: &str, there: usize, given: usize) -> Result<(), ExecError> {
        match there == given {
            true => Ok(()),
            false => Err(ExecError::Size { name: name.into(), there, given, offset: 0 }),
        }
    }

    /// Whether `given` bytes from `offset` on lie inside the `there` that `name` has.
    pub fn check_inside(name: &str, there: usize, offset: usize, given: usize) -> Result<(), ExecError> {
        match there.checked_sub(offset).is_some_and(|rest| given <= rest) {
            true => Ok(()),
            false => Err(ExecError::Size { name: name.into(), there, given, offset }),
        }
    }
}

impl Explain for ExecError {
    fn fault(&self) -> Fault {
        match self {
            ExecError::Device(failure) => failure.fault(),
            _ => Fault::Failed,
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            ExecError::Device(failure) => failure.hints(),
            _ => vec![DEFECT.into()],
        }
    }

    fn message(&self) -> String {
        match self {
            ExecError::Device(failure) => failure.message(),
            _ => self.to_string(),
        }
    }

    fn lacks_memory(&self) -> bool {
        matches!(self, ExecError::Device(failure) if failure.lacks_memory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_lie_inside_or_the_error_says_where_they_do_not() {
        for (offset, given, fits) in [(0, 8, true), (4, 4, true), (8, 0, true), (4, 5, false), (9, 0, false)] {
            assert_eq!(ExecError::check_inside("w", 8, offset, given).is_ok(), fits, "{given} from {offset} on");
        }
        let error = ExecError::check_inside("w", 8, usize::MAX, 2).unwrap_err();
        assert!(error.to_string().starts_with("w has 8 bytes, and 2 were given"), "{error}");
        assert!(ExecError::check_size("w", 8, 4).is_err() && ExecError::check_size("w", 8, 8).is_ok());
    }

    #[test]
    fn what_a_device_says_keeps_its_fault_and_its_hints() {
        #[derive(Debug)]
        struct Lost;
        impl std::fmt::Display for Lost {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the device is gone")
            }
        }
        impl Explain for Lost {
            fn fault(&self) -> Fault {
                Fault::BadInput
            }
            fn hints(&self) -> Vec<String> {
                vec!["plug it in".into()]
            }
        }
        let error = ExecError::device(Lost);
        assert_eq!((error.to_string(), error.fault()), ("the device is gone".into(), Fault::BadInput));
        assert_eq!(error.hints(), ["plug it in"]);
        let missing = ExecError::NoResident { name: "lr".into() };
        assert_eq!((missing.fault(), missing.hints()), (Fault::Failed, vec![DEFECT.into()]));
    }
}

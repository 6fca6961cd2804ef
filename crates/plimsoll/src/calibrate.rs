//! Measuring a device of this machine.

use crate::{Device, RunError};
use plimsoll_train::calibrate;
use std::time::Duration;

pub use plimsoll_train::calibrate::{Calibration, ClassCheck, StepCheck};

/// Measures a device: small models of every family are trained in turn for about `time`, and the rates that explain their
/// steps best become its profile. `progress` is told the share that is done. What earlier measurements found is not used,
/// so that the same device gives the same answer. Kept by [`store_profile`](crate::store_profile), it is what later
/// predictions for the device are made by.
///
/// ```no_run
/// use plimsoll::{Device, calibrate, store_profile};
/// use std::time::Duration;
///
/// let device = Device::detect()?;
/// let calibration = calibrate(&device, Duration::from_secs(15), |share| eprint!("{:.0} %\r", 100.0 * share))?;
/// for step in &calibration.steps {
///     println!("{}: {:.2} ms, predicted {:.2} ms", step.model, step.measured_ms, step.predicted_ms);
/// }
/// let device = device.measured().expect("it is here");
/// println!("kept in {}", store_profile(&device, &calibration.profile)?.display());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The device cannot be used, or has no memory for these models.
pub fn calibrate(device: &Device, time: Duration, progress: impl FnMut(f64)) -> Result<Calibration, RunError> {
    let mut device = device.clone();
    device.forget_measurements();
    calibrate::calibrate(&device, time, progress)
}

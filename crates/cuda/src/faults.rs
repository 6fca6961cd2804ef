//! What an answer of the driver means for a training run, and what to do about it.

use cudarc::driver::sys::CUresult;
use plimsoll_core::kernels::cuda::CudaError;

/// What happened, and what helps. None where only the driver's own words say anything.
fn meaning(code: CUresult) -> Option<(&'static str, &'static str)> {
    use CUresult::*;
    Some(match code {
        CUDA_ERROR_NO_DEVICE => (
            "the driver sees no GPU",
            "check `nvidia-smi` and CUDA_VISIBLE_DEVICES; a container has to be started with its GPUs",
        ),
        CUDA_ERROR_DEVICE_UNAVAILABLE => (
            "the GPU is in use by another process that shares it with nobody, or is gone",
            "`nvidia-smi` shows its state and who holds it; end that process or take another device",
        ),
        CUDA_ERROR_STUB_LIBRARY => (
            "the libcuda found first is the toolkit's stub, not the driver's",
            "take the toolkit's folder `stubs` out of LD_LIBRARY_PATH",
        ),
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => (
            "the driver's library and its kernel module are of different versions",
            "restart the machine, so that the module of the new driver is loaded",
        ),
        CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => (
            "this GPU does not take a library newer than its driver",
            "update the driver itself, and take the compatibility package out of LD_LIBRARY_PATH",
        ),
        CUDA_ERROR_SYSTEM_NOT_READY => (
            "the machine's GPUs are not ready yet",
            "machines with NVSwitch need the service nvidia-fabricmanager: start it",
        ),
        CUDA_ERROR_ECC_UNCORRECTABLE | CUDA_ERROR_CONTAINED => (
            "the GPU's memory failed: an error that it could not correct",
            "`nvidia-smi -q -d ECC` counts such errors; reset the GPU or restart the machine, then go on with --resume",
        ),
        CUDA_ERROR_NVLINK_UNCORRECTABLE => (
            "the link between GPUs failed",
            "`nvidia-smi nvlink -e` counts such errors; restart the machine, then go on with --resume",
        ),
        CUDA_ERROR_ILLEGAL_ADDRESS
        | CUDA_ERROR_MISALIGNED_ADDRESS
        | CUDA_ERROR_INVALID_ADDRESS_SPACE
        | CUDA_ERROR_ILLEGAL_INSTRUCTION
        | CUDA_ERROR_INVALID_PC
        | CUDA_ERROR_HARDWARE_STACK_ERROR => (
            "a kernel did what the GPU does not allow",
            "this is a defect of plimsoll: please report it with the recipe; checkpoints written before are whole, and \
             --resume with --device cpu goes on from them, unless the recipe pins a precision that only GPUs have",
        ),
        CUDA_ERROR_LAUNCH_TIMEOUT => (
            "a kernel ran for longer than the watchdog of a GPU with a display allows",
            "go on with --resume on a GPU without a display, or begin anew with a smaller memory.micro_batch",
        ),
        CUDA_ERROR_LAUNCH_FAILED | CUDA_ERROR_UNKNOWN => (
            "the GPU stopped in the middle of its work, or is gone",
            "`nvidia-smi` and the system's log (Xid) say why; checkpoints written before are whole: go on with --resume, \
             there or, unless the recipe pins a precision that only GPUs have, with --device cpu",
        ),
        _ => return None,
    })
}

/// The error of a call, without asking the driver, which may be what failed. None where it has no meaning of its own.
pub(super) fn fault(call: &'static str, code: CUresult) -> Option<CudaError> {
    meaning(code).map(|(cause, hint)| CudaError::Fault { call, code: format!("{code:?}"), cause, hint })
}

#[cfg(test)]
mod tests {
    use super::*;
    use CUresult::*;

    #[test]
    fn a_failed_gpu_is_named_with_the_call_and_what_helps() {
        let told = |code: CUresult| match fault("cuStreamSynchronize", code) {
            Some(CudaError::Fault { cause, hint, .. }) => (cause, hint),
            other => panic!("{code:?}: {other:?}"),
        };
        assert!(told(CUDA_ERROR_ECC_UNCORRECTABLE).0.contains("memory failed"));
        assert!(told(CUDA_ERROR_DEVICE_UNAVAILABLE).1.contains("who holds it"));
        assert!(told(CUDA_ERROR_ILLEGAL_ADDRESS).1.contains("defect of plimsoll"));
        assert!(told(CUDA_ERROR_UNKNOWN).0.contains("is gone"));
        assert!(told(CUDA_ERROR_NO_DEVICE).1.contains("CUDA_VISIBLE_DEVICES"));
        let text = fault("cuStreamSynchronize", CUDA_ERROR_ECC_UNCORRECTABLE).unwrap().to_string();
        assert!(text.ends_with("(cuStreamSynchronize: CUDA_ERROR_ECC_UNCORRECTABLE)"), "{text}");
    }

    /// What is no failure of the device stays in the driver's words; no memory is told apart where it is taken.
    #[test]
    fn other_answers_have_no_meaning_of_their_own() {
        for code in [CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_READY] {
            assert_eq!(fault("cuMemAlloc", code), None, "{code:?}");
        }
    }
}

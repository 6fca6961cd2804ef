//! Messages as they were printed, and what is in them.

use super::*;
use proptest::prelude::*;

const MIB: f64 = 1048576.0;
const GIB: f64 = 1073741824.0;

/// What a message must be read as; sizes in bytes, rounded as printed.
#[derive(Default)]
struct Told {
    asked: Option<f64>,
    total: Option<f64>,
    free: Option<f64>,
    allocated: Option<f64>,
    unallocated: Option<f64>,
    process: Option<f64>,
    others: Vec<(u64, f64)>,
    gpu: Option<u64>,
}

/// Asked for, on the card, free, in tensors and kept aside; on the first card.
fn told([asked, total, free, allocated, unallocated]: [f64; 5]) -> Told {
    Told {
        asked: Some(asked),
        total: Some(total),
        free: Some(free),
        allocated: Some(allocated),
        unallocated: Some(unallocated),
        gpu: Some(0),
        ..Told::default()
    }
}

/// (who printed it, the text, its form, its numbers)
fn messages() -> Vec<(&'static str, &'static str, Form, Told)> {
    vec![
        (
            "a series model on 12 GB",
            "Tried to allocate 2.69 GiB. GPU 0 has a total capacity of 12.00 GiB of which 0 bytes is free. … 10.83 GiB is allocated, 2.02 GiB is reserved but unallocated",
            Form::Allocator,
            told([2.69 * GIB, 12.0 * GIB, 0.0, 10.83 * GIB, 2.02 * GIB]),
        ),
        (
            "clip, in words",
            "Out of memory in the backward pass of epoch 2 of 20 at batch 96 or 128 (the report says both), ~7.5 GB.",
            Form::Prose,
            Told::default(),
        ),
        (
            "a T4",
            "Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 14.74 GiB of which 4.19 MiB is free",
            Form::Allocator,
            Told {
                asked: Some(32.0 * MIB),
                total: Some(14.74 * GIB),
                free: Some(4.19 * MIB),
                gpu: Some(0),
                ..Told::default()
            },
        ),
        (
            "a search over encoders",
            "Tried to allocate 360.00 MiB. GPU has 23.56 GiB total, only 259.88 MiB free",
            Form::Allocator,
            Told { asked: Some(360.0 * MIB), total: Some(23.56 * GIB), free: Some(259.88 * MIB), ..Told::default() },
        ),
        ("FLAN-T5-XL, in words", "Out of memory at the start of training.", Form::Prose, Told::default()),
        (
            "PyTorch 1.0: cached is what no tensor holds",
            "RuntimeError: CUDA out of memory. Tried to allocate 1024.00 KiB (GPU 0; 11.17 GiB total capacity; 10.90 GiB already allocated; 576.00 KiB free; 30.96 MiB cached)",
            Form::Allocator,
            told([MIB, 11.17 * GIB, 576.0 * 1024.0, 10.9 * GIB, 30.96 * MIB]),
        ),
        (
            "PyTorch 1.4: reserved in total",
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total capacity; 5.89 GiB already allocated; 14.19 MiB free; 6.03 GiB reserved in total by PyTorch)",
            Form::Allocator,
            told([20.0 * MIB, 7.79 * GIB, 14.19 * MIB, 5.89 * GIB, 0.14 * GIB]),
        ),
        (
            "PyTorch 1.13, second card",
            "RuntimeError: CUDA out of memory. Tried to allocate 1.65 GiB (GPU 1; 7.79 GiB total capacity; 3.53 GiB already allocated; 1.40 GiB free; 5.28 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
            Form::Allocator,
            Told { gpu: Some(1), ..told([1.65 * GIB, 7.79 * GIB, 1.4 * GIB, 3.53 * GIB, 1.75 * GIB]) },
        ),
        (
            "PyTorch 1.8 with a memory fraction",
            "RuntimeError: CUDA out of memory. Tried to allocate 96.00 MiB (GPU 0; 15.78 GiB total capacity; 3.90 GiB already allocated; 11.20 GiB free; 4.00 GiB allowed; 3.95 GiB reserved in total by PyTorch)",
            Form::Allocator,
            told([96.0 * MIB, 15.78 * GIB, 11.2 * GIB, 3.9 * GIB, 0.05 * GIB]),
        ),
        (
            "PyTorch 2.0, its own exception",
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.69 GiB (GPU 0; 14.56 GiB total capacity; 649.97 MiB already allocated; 1.31 GiB free; 1.01 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.",
            Form::Allocator,
            told([1.69 * GIB, 14.56 * GIB, 1.31 * GIB, 649.97 * MIB, 1.01 * GIB - 649.97 * MIB]),
        ),
        (
            "PyTorch 2.1: misspelt, and the process a stranger to itself",
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacty of 44.34 GiB of which 160.81 MiB is free. Process 47694 has 44.17 GiB memory in use. Of the allocated memory 43.36 GiB is allocated by PyTorch, and 396.27 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation.",
            Form::Allocator,
            Told {
                process: Some(44.17 * GIB),
                ..told([224.0 * MIB, 44.34 * GIB, 160.81 * MIB, 43.36 * GIB, 396.27 * MIB])
            },
        ),
        (
            "PyTorch 2.3, the card without a number",
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU  has a total capacity of 44.34 GiB of which 160.81 MiB is free. Including non-PyTorch memory, this process has 44.17 GiB memory in use. Of the allocated memory 43.36 GiB is allocated by PyTorch, and 396.27 MiB is reserved by PyTorch but unallocated.",
            Form::Allocator,
            Told {
                process: Some(44.17 * GIB),
                gpu: None,
                ..told([224.0 * MIB, 44.34 * GIB, 160.81 * MIB, 43.36 * GIB, 396.27 * MIB])
            },
        ),
        (
            "PyTorch 2.5 beside five others",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 42.00 MiB. GPU 0 has a total capacity of 47.27 GiB of which 9.38 MiB is free. Process 644963 has 5.59 MiB memory in use. Process 644977 has 5.59 MiB memory in use. Process 2925282 has 312.00 MiB memory in use. Process 3053273 has 29.04 GiB memory in use. Process 3120922 has 14.74 GiB memory in use. Including non-PyTorch memory, this process has 3.14 GiB memory in use. Of the allocated memory 2.92 GiB is allocated by PyTorch, and 34.62 MiB is reserved by PyTorch but unallocated.",
            Form::Allocator,
            Told {
                process: Some(3215.36 * MIB),
                others: vec![
                    (644963, 5.59 * MIB),
                    (644977, 5.59 * MIB),
                    (2925282, 312.0 * MIB),
                    (3053273, 29.04 * GIB),
                    (3120922, 14.74 * GIB),
                ],
                ..told([42.0 * MIB, 47.27 * GIB, 9.38 * MIB, 2.92 * GIB, 34.62 * MIB])
            },
        ),
        (
            "PyTorch 2.6, wrapped, coloured and behind a rank",
            "\u{1b}[31m[rank3]:\u{1b}[0m torch.OutOfMemoryError: CUDA out of memory. Tried to\n[rank3]:     allocate 20.00 MiB. GPU 3 has a total capacity of 15.51 GiB of which 149.62 MiB is free. Including non-PyTorch memory, this process has 11.65 GiB memory in use. Of the allocated memory 11.47 GiB is allocated by PyTorch, with 96.00 MiB allocated in private pools (e.g., CUDA Graphs), and 10.27 MiB is reserved by PyTorch but unallocated.",
            Form::Allocator,
            Told {
                process: Some(11.65 * GIB),
                gpu: Some(3),
                ..told([20.0 * MIB, 15.51 * GIB, 149.62 * MIB, 11.47 * GIB, 10.27 * MIB])
            },
        ),
        (
            "PyTorch 2.6 behind a rank",
            "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 3 has a total capacity of 15.51 GiB of which 149.62 MiB is free. Including non-PyTorch memory, this process has 11.65 GiB memory in use. Of the allocated memory 11.47 GiB is allocated by PyTorch, with 96.00 MiB allocated in private pools (e.g., CUDA Graphs), and 10.27 MiB is reserved by PyTorch but unallocated.",
            Form::Allocator,
            Told {
                process: Some(11.65 * GIB),
                gpu: Some(3),
                ..told([20.0 * MIB, 15.51 * GIB, 149.62 * MIB, 11.47 * GIB, 10.27 * MIB])
            },
        ),
        (
            "an AMD card",
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 8.02 GiB. GPU 0 has a total capacity of 15.98 GiB of which 6.59 GiB is free. Of the allocated memory 8.10 GiB is allocated by PyTorch, and 716.40 MiB is reserved by PyTorch but unallocated.",
            Form::Allocator,
            told([8.02 * GIB, 15.98 * GIB, 6.59 * GIB, 8.1 * GIB, 716.4 * MIB]),
        ),
        (
            "a shape that cannot be meant",
            "RuntimeError: CUDA out of memory. Tried to allocate 17179869184.00 GiB (GPU 0; 7.79 GiB total capacity; 1.02 GiB already allocated; 5.19 GiB free; 1.11 GiB reserved in total by PyTorch)",
            Form::Allocator,
            told([u64::MAX as f64, 7.79 * GIB, 5.19 * GIB, 1.02 * GIB, 0.09 * GIB]),
        ),
        (
            "Apple",
            "RuntimeError: MPS backend out of memory (MPS allocated: 5.05 GB, other allocations: 2.29 GB, max allowed: 6.80 GB). Tried to allocate 1024.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations",
            Form::Mps,
            Told { asked: Some(GIB), allocated: Some(5.05 * GIB), ..Told::default() },
        ),
        (
            "the driver",
            "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
            Form::Driver,
            Told::default(),
        ),
        (
            "cuBLAS",
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            Form::Library,
            Told::default(),
        ),
        ("cuDNN", "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", Form::Library, Told::default()),
        (
            "NCCL",
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda error, NCCL version 2.20.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
            Form::Communication,
            Told::default(),
        ),
        (
            "JAX",
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.",
            Form::Xla,
            Told { asked: Some(4.0 * GIB), ..Told::default() },
        ),
        (
            "TensorFlow",
            "ResourceExhaustedError: OOM when allocating tensor with shape[256,512,28,28] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
            Form::Xla,
            Told { asked: Some(256.0 * 512.0 * 28.0 * 28.0 * 4.0), ..Told::default() },
        ),
        (
            "the loader's worker",
            "RuntimeError: DataLoader worker (pid 12345) is killed by signal: Killed.",
            Form::Host,
            Told::default(),
        ),
        (
            "the machine's memory",
            "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 35433480192 bytes. Error code 12 (Cannot allocate memory)",
            Form::Host,
            Told { asked: Some(35433480192.0), ..Told::default() },
        ),
        (
            "NumPy",
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 14.9 GiB for an array with shape (2000000000,) and data type float64",
            Form::Host,
            Told { asked: Some(14.9 * GIB), ..Told::default() },
        ),
        ("a container that was ended", "error: command failed with exit code 137", Form::Host, Told::default()),
        (
            "shared memory",
            "RuntimeError: DataLoader worker (pid 4321) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
            Form::SharedMemory,
            Told::default(),
        ),
    ]
}

fn close(found: Option<u64>, told: Option<f64>) -> bool {
    match (found, told) {
        (None, None) => true,
        // Differences of two printed sizes err by both roundings.
        (Some(found), Some(told)) => (found as f64 - told).abs() <= 0.011 * GIB.min(told.max(MIB)),
        _ => false,
    }
}

#[test]
fn every_form_is_read_as_it_is_meant() {
    for (name, text, form, told) in messages() {
        let oom = Oom::find(text).unwrap_or_else(|| panic!("{name}: nothing found"));
        assert_eq!(oom.form, form, "{name}");
        assert_eq!(oom.gpu, told.gpu, "{name}");
        let pairs = [
            ("asked", oom.asked.map(|a| a.bytes), told.asked),
            ("total", oom.total_bytes, told.total),
            ("free", oom.free_bytes, told.free),
            ("allocated", oom.allocated_bytes, told.allocated),
            ("unallocated", oom.unallocated_bytes, told.unallocated),
            ("process", oom.process_bytes, told.process),
        ];
        for (field, found, told) in pairs {
            assert!(close(found, told), "{name}: {field} is {found:?}, not {told:?}");
        }
        assert_eq!(oom.others.len(), told.others.len(), "{name}");
        for (found, (pid, bytes)) in oom.others.iter().zip(told.others) {
            assert!(found.pid == pid && close(Some(found.bytes), Some(bytes)), "{name}: {found:?}");
        }
    }
}

#[test]
fn what_is_not_about_memory_is_not_found() {
    for text in
        ["", "loss 0.31 at step 12", "ModuleNotFoundError: No module named 'torch._C' (cuda-12.4)", "allocated 3 GiB"]
    {
        assert_eq!(Oom::find(text), None, "{text}");
    }
}

#[test]
fn limits_ranks_and_repeats_are_seen() {
    let limited = "CUDA out of memory. Tried to allocate 96.00 MiB (GPU 0; 15.78 GiB total capacity; 3.90 GiB already allocated; 11.20 GiB free; 4.00 GiB allowed; 3.95 GiB reserved in total by PyTorch)";
    assert_eq!(Oom::find(limited).unwrap().allowed_bytes, Some(4 << 30));
    let twice = format!("[rank1]: {limited}\n[rank2]: {}", limited.replace("96.00", "64.00"));
    let oom = Oom::find(&twice).unwrap();
    assert_eq!((oom.messages, oom.rank, oom.asked.unwrap().bytes), (2, Some(2), 64 << 20));
}

#[test]
fn more_in_use_than_there_is_means_spilling() {
    let (_, text, ..) = messages().remove(0);
    assert!(Oom::find(text).unwrap().spills());
    assert!(!Oom::find(messages().remove(6).1).unwrap().spills());
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = Oom::find(&text);
    }

    /// Words of messages with anything between them, absurd numbers included.
    #[test]
    fn words_of_messages_in_any_order_never_panic(
        parts in prop::collection::vec(prop_oneof![
            Just("CUDA out of memory. Tried to allocate ".to_string()),
            Just("total capacity of ".to_string()),
            Just(" is free. Process ".to_string()),
            Just(" has ".to_string()),
            Just(" memory in use. this process has ".to_string()),
            Just(" is allocated by PyTorch, and ".to_string()),
            Just("with shape[".to_string()),
            "[0-9]{0,40}[.]?[0-9]{0,30} ?(MiB|GiB|EiB|bytes|é|🦀)?",
            any::<String>(),
        ], 0..12)
    ) {
        let _ = Oom::find(&parts.concat());
    }

    /// Real messages with a piece cut out, repeated or replaced.
    #[test]
    fn damaged_messages_never_panic(which in 0usize..28, at in 0usize..400, cut in 0usize..60, noise in any::<String>()) {
        let text = messages().swap_remove(which).1;
        let damaged: String = text.chars().take(at).chain(noise.chars()).chain(text.chars().skip(at + cut)).collect();
        let _ = Oom::find(&damaged);
    }
}

#[test]
fn a_log_that_ends_in_killed_is_about_the_machines_memory() {
    for text in [
        "epoch 1 step 30\nKilled\n",
        "step 3\n./train.sh: line 3:  4242 Killed                  python train.py --epochs 3\n\n",
        "[1]+  4242 Killed python x.py",
        "worker: Killed",
    ] {
        let oom = Oom::find(text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!((oom.form, oom.messages), (Form::Host, 1), "{text}");
    }
    for text in ["Killed 3 zombies in the game\nstep 1\nstep 2", "the 2 Killers", "loss 0.3"] {
        assert_eq!(Oom::find(text), None, "{text}");
    }
}

#[test]
fn what_the_process_has_is_read_in_every_wording() {
    for words in ["Process has 22.72 GiB", "Process using 22.72 GiB", "this process has 22.72 GiB memory in use"] {
        let text = format!("CUDA out of memory. Tried to allocate 360.00 MiB. GPU total 23.56 GiB. {words}");
        assert_eq!(Oom::find(&text).unwrap().process_bytes, Some((22.72 * (1u64 << 30) as f64) as u64), "{words}");
    }
    let named = "CUDA out of memory. Tried to allocate 1.00 GiB. Process 77 has 3.00 GiB memory in use.";
    let oom = Oom::find(named).unwrap();
    assert_eq!((oom.process_bytes, oom.others.len()), (None, 1), "a process with a number is another");
}

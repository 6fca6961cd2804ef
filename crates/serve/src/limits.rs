//! What the system lets a process have.

/// As many open files as the system allows: each client that watches a run is one.
pub fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls read or write the struct that is handed to them, and nothing else.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max.min(16384).max(limit.rlim_cur);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// What nobody waits for works when no other thread wants to.
pub(crate) const LAST: i32 = 19;
/// What somebody waits for who can wait has a quarter of a core that others want, too: beside a training it ends as well.
pub(crate) const LATER: i32 = 5;

/// This thread, and those that it begins, work behind others from now on.
pub(crate) fn give_way(by: i32) {
    // SAFETY: sets a number of the calling thread, which Linux knows as process 0; refused, nothing changes.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, by);
    }
}

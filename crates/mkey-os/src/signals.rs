//! What a process inherited for a signal.

use std::os::raw::c_int;

/// Whether a signal is ignored, as `nohup` and a shell's `trap ''` have it for what they start.
/// `false` for a number that is no signal.
pub fn is_ignored(signal: c_int) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only; the structure is ours to be written.
    if unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: zeroed, which is a value of it, and written by the call.
    unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_is_not_default() {
        // The runtime of Rust ignores SIGPIPE, and tests run with SIGURG as it is by default.
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGURG));
        assert!(!is_ignored(-1) && !is_ignored(10_000));
    }
}

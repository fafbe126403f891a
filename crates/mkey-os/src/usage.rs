//! What the calling thread has used.

/// How often another program or thread was run in place of the calling one, against its will, since
/// it began; 0 where the kernel does not tell.
pub fn preemptions() -> u64 {
    // SAFETY: all bits zero is a value of this plain structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one `rusage`, to which the pointer is.
    let answer = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    if answer == 0 { u64::try_from(usage.ru_nivcsw).unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn it_counts_as_the_kernels_own_file_does() {
        let told = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line =
                status.lines().find(|l| l.starts_with("nonvoluntary_ctxt_switches")).unwrap();
            line.split_whitespace().last().unwrap().parse::<u64>().unwrap()
        };
        // A preemption between the readings changes the answer: it is asked again then.
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            let (before, count, after) = (told(), preemptions(), told());
            assert!((before..=after).contains(&count), "{before} {count} {after}");
            if before == after {
                break;
            }
            assert!(Instant::now() < patience, "preempted at each reading");
        }
    }
}

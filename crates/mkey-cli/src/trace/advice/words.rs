//! What to change, and what can go wrong, in words.

use super::Weighed;
use super::host::Host;
use crate::bench::units::{count, size};
use crate::replay::script::Script;
use crate::replay::strategy::Strategy;

/// The risk of a strategy and the change to make for it.
pub fn of(strategy: Strategy, scripts: &[Script], weighed: Option<&Weighed>) -> (String, String) {
    let registrations: u64 = scripts.iter().map(|script| script.ranges.len() as u64).sum();
    let distinct: u64 = scripts.iter().map(|script| script.distinct().1 as u64).sum();
    let local = scripts.iter().flat_map(|script| &script.ranges);
    let local = local.filter(|range| !range.is_exposed()).count() as u64;
    let bytes = weighed.map_or_else(|| "its buffers".to_owned(), |w| size(w.predicted.most_bytes));
    let (risk, change) = match strategy {
        Strategy::AsRecorded => ("none".to_owned(), "none".to_owned()),
        Strategy::Once => (
            "buffers must live as long as their registration; what is freed and allocated anew is another \
             buffer"
                .to_owned(),
            format!(
                "Register each of the {} distinct buffers when it is allocated, keep its ibv_mr beside it, and \
                 deregister it when it is freed: not for each I/O.",
                count(distinct)
            ),
        ),
        Strategy::Cache => (
            "stale after munmap or free without a monitor: use Invalidation::Events, or call \
             Cache::invalidate before memory goes; a peer's key lives on after the I/O"
                .to_owned(),
            "Ask a registration cache in place of ibv_reg_mr, and give its result back in place of \
             ibv_dereg_mr: mkey::Cache::builder(&pd).invalidation(Invalidation::Events).build(), then cache.get() \
             for each I/O."
                .to_owned(),
        ),
        Strategy::Pool => (
            "buffers have to come from the pool: data that lies elsewhere must be copied (see bounce); a \
             peer that has the pool's key reaches all of it"
                .to_owned(),
            format!(
                "Register {bytes} once and take I/O buffers from there: mkey::Pool::new(&pd, &PoolOptions::default()\
                 .slab(..)), then pool.alloc(len) in place of malloc + ibv_reg_mr."
            ),
        ),
        Strategy::Bounce => (
            "each byte is copied: CPU and memory bandwidth grow with the I/O; a peer that has the pool's key \
             reaches all of it"
                .to_owned(),
            format!(
                "Keep the program's buffers, and register none of them: take a buffer of a pool of {bytes} for \
                 each I/O, copy into it before, or out of it after."
            ),
        ),
        Strategy::Huge => (
            "pages must be reserved beforehand (vm.nr_hugepages), or transparent ones be granted; a buffer \
             takes whole pages of 2 MiB"
                .to_owned(),
            format!(
                "Allocate registered memory ({bytes}) on huge pages: mmap with MAP_HUGETLB, or aligned to 2 MiB \
                 with madvise(MADV_HUGEPAGE) before it is touched; mkey::Region does either."
            ),
        ),
        Strategy::Mw => (
            format!(
                "the NIC must have windows of type 2 (mkey devices); each bind is a work request; {} of {} \
                 registrations open nothing to a peer and need none",
                count(local),
                count(registrations)
            ),
            "Register the memory once with IBV_ACCESS_MW_BIND, bind a window for each request in the post \
             that tells the peer, and invalidate it after: mkey::Slice::grant."
                .to_owned(),
        ),
        Strategy::Frmr => (
            "the NIC must offer fast registration from user space (mlx5: UMR); each is a work request".to_owned(),
            "Register the memory once, local only, and post a fast registration for each request: \
             mkey::FastMrPool::map."
                .to_owned(),
        ),
    };
    (risk, change)
}

/// What all figures stand on.
pub fn assumptions(scripts: &[Script], host: &Host) -> Vec<String> {
    let mut assumptions = vec![
        "the program asks for the same memory in the same order, and the memory stays mapped between its \
         registrations; one that unmaps it each time gains less from a cache"
            .to_owned(),
        "what other threads wait for (locks of the kernel, of the driver) is not in the saving".to_owned(),
        "all that is kept registered is deregistered once, at the end".to_owned(),
        "bounce: the whole of a buffer is copied once for each registration, in each direction that work is known \
         to have used it in"
            .to_owned(),
    ];
    let by_rights: usize = scripts.iter().map(|script| script.by_rights.len()).sum();
    if by_rights > 0 {
        let all: usize = scripts.iter().map(|script| script.ranges.len()).sum();
        assumptions.push(format!(
            "bounce: {} of {} registrations were used by no work that was recorded, and are open to peers: they \
             are copied in each direction that their rights allow",
            count(by_rights as u64),
            count(all as u64)
        ));
    }
    if !host.device.is_empty() {
        let what = if host.is_software { "a software RNIC, not a NIC" } else { "this machine's" };
        assumptions.push(format!("measured now, model: on {} ({what})", host.device));
    }
    let substituted: u64 = scripts.iter().map(|script| script.substituted).sum();
    if substituted > 0 {
        assumptions.push(format!(
            "{substituted} registrations of files and shared memory are taken for anonymous memory"
        ));
    }
    assumptions
}

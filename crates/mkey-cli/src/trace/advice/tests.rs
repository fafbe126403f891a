use super::host::{Costs, Host, Straight};
use super::{Advice, Proposal, Source, dry, text};
use crate::replay::sample::{Recorder, per_io, small};
use crate::replay::script::Script;
use crate::replay::strategy::Strategy;
use crate::replay::tests::{naive_misses, odd, sequences};
use mkey_os::mapping::PageKind;
use mkey_trace::format::{Pages, Recording, Remote};
use proptest::prelude::*;

/// A machine of round figures: registering on base pages 1 us + 20 ns a page, on huge ones 1 us +
/// 100 ns a page; deregistering half of that.
fn host() -> Host {
    let costs = |page| Costs {
        register: Straight { fixed: 1000.0, page },
        deregister: Straight { fixed: 500.0, page: page / 2.0 },
    };
    Host {
        device: "mkey0".to_owned(),
        is_software: true,
        base: Some(costs(20.0)),
        huge: Some(costs(100.0)),
        huge_pages: Some(PageKind::Huge2M),
        window_ns: Some(100.0),
        fast_ns: Some(200.0),
        copies: vec![(4096, 400.0), (1 << 20, 200_000.0)],
        missing: Vec::new(),
    }
}

fn of(advice: &Advice, strategy: Strategy) -> &Proposal {
    advice.proposals.iter().find(|proposal| proposal.strategy == strategy).unwrap()
}

fn ns(advice: &Advice, strategy: Strategy) -> f64 {
    of(advice, strategy).weighed().unwrap_or_else(|| panic!("{advice:?}")).predicted.ns
}

#[test]
fn what_is_registered_for_each_io_is_kept_by_a_cache() {
    let advice = Advice::by(&per_io(1000, 4, 4096), &host());
    assert_eq!(advice.spent.as_ref().unwrap().ns, 3_000_000.0);
    let cache = of(&advice, Strategy::Cache);
    assert!(cache.is_advised);
    let weighed = cache.weighed().unwrap();
    // Four misses and their ends, as they were recorded; the hits as measured now.
    let [misses, hits, ends] = &weighed.predicted.parts[..] else { panic!("{weighed:?}") };
    assert_eq!((misses.times, misses.ns, misses.source), (4, 8000.0, Source::Recorded));
    assert_eq!((hits.times, hits.source), (996, Source::Measured));
    assert!(hits.ns > 0.0 && hits.ns < 996.0 * 20_000.0, "{hits:?}");
    assert_eq!((ends.times, ends.ns, ends.source), (4, 4000.0, Source::Recorded));
    assert_eq!(weighed.saving_ns, 3_000_000.0 - 12_000.0 - hits.ns);
    assert_eq!((weighed.predicted.made, weighed.predicted.most_bytes), (4, 4 * 4096));
    assert_eq!(ns(&advice, Strategy::Once), 12_000.0);
    // One region of four pages for good, by the line and what the run took beyond it, and a window for
    // each I/O.
    let region = (1080.0 + 980.0) + (540.0 + 490.0);
    assert_eq!(ns(&advice, Strategy::Mw), region + 1000.0 * 100.0);
    assert_eq!(ns(&advice, Strategy::Frmr), region + 1000.0 * 200.0);
    assert_eq!(advice.site.as_ref().unwrap().place, "register_one (server)");
}

#[test]
fn many_small_buffers_become_one_region() {
    let advice = Advice::by(&small(1000, 4096), &host());
    assert_eq!(advice.spent.as_ref().unwrap().ns, 2_000_000.0);
    let pool = of(&advice, Strategy::Pool).weighed().unwrap();
    // The slab: by the line, moved by what a page took in the run beyond the line: 480 ns, and for
    // its end nothing, as the run was quicker.
    let slab = |of: &str| pool.predicted.parts.iter().find(|part| part.what.contains(of)).unwrap();
    assert_eq!(slab("slab of the pool").source, Source::Model);
    assert!((slab("slab of the pool").ns - (1000.0 + 20.0 * 1000.0 + 480.0)).abs() < 1e-6);
    assert!((slab("slab given").ns - (500.0 + 10.0 * 1000.0)).abs() < 1e-6);
    assert_eq!(pool.predicted.made, 1);
    assert_eq!(pool.predicted.most_bytes, 1000 * 4096);
    // Nothing was asked for twice: keeping it saves nothing.
    for strategy in [Strategy::Cache, Strategy::Once] {
        let proposal = of(&advice, strategy);
        assert!(!proposal.is_advised && proposal.weighed().unwrap().saving_ns <= 0.0);
    }
}

#[test]
fn copies_are_paid_for_in_each_direction_that_was_used() {
    let mut recording = per_io(10, 1, 4096);
    recording.regions.iter_mut().for_each(|region| region.sends = 1);
    let bounce = |recording: &Recording| ns(&Advice::by(recording, &host()), Strategy::Bounce);
    let copies = |recording: &Recording| {
        let advice = Advice::by(recording, &host());
        let parts = &of(&advice, Strategy::Bounce).weighed().unwrap().predicted.parts;
        parts.iter().find(|part| part.what == "copies").map(|part| (part.times, part.ns))
    };
    assert_eq!(copies(&recording), Some((10, 4000.0)));
    recording.regions.iter_mut().for_each(|region| region.reads = 1);
    assert_eq!(copies(&recording), Some((20, 8000.0)));
    assert!(bounce(&recording) > 8000.0);
}

/// Regions that nobody is known to have used, but that peers may have: told apart from those that were.
#[test]
fn copies_for_what_peers_may_have_done_are_told_apart() {
    let mut recording = per_io(10, 10, 4096);
    let regions = &mut recording.regions;
    regions[0].sends = 1;
    // A peer in the recording wrote to this one.
    let region = Some(regions[1].id);
    recording.remotes.push(Remote { process: 1, region, writes: 3, ..Remote::default() });
    let advice = Advice::by(&recording, &host());
    let parts = &of(&advice, Strategy::Bounce).weighed().unwrap().predicted.parts;
    let times = |what: &str| parts.iter().find(|part| part.what == what).map(|part| part.times);
    assert_eq!(times("copies"), Some(2));
    // Peers may read and write the eight others.
    assert_eq!(times("copies for what peers may have done"), Some(16));
    let told = advice.assumptions.join("; ");
    assert!(
        told.contains("8 of 10 registrations were used by no work that was recorded"),
        "{told}"
    );
    // What is open to nobody and was used by nobody is not copied.
    recording.remotes.clear();
    recording.regions.iter_mut().for_each(|region| (region.sends, region.access) = (0, 1));
    let advice = Advice::by(&recording, &host());
    let parts = &of(&advice, Strategy::Bounce).weighed().unwrap().predicted.parts;
    assert!(parts.iter().all(|part| !part.what.contains("cop")), "{parts:?}");
    assert!(!advice.assumptions.join("; ").contains("open to peers"));
}

#[test]
fn huge_pages_save_what_the_pages_took() {
    let mut recorder = Recorder::new();
    // 4 MiB: 1024 base pages or two huge ones; the line says 21480 and 1200 ns.
    let id = recorder.register(0, 4 << 20, 30_000);
    recorder.deregister(id, 15_000);
    let on_huge = recorder.register_with(1 << 30, 4 << 20, 7, Pages::Huge2M, 1300);
    recorder.deregister(on_huge, 700);
    let advice = Advice::by(&recorder.finish(), &host());
    let (register, deregister) = (30_000.0 - (21_480.0 - 1_200.0), 15_000.0 - (10_740.0 - 600.0));
    assert!((ns(&advice, Strategy::Huge) - (register + deregister + 2000.0)).abs() < 1e-6);
}

#[test]
fn what_was_not_measured_is_told_as_that() {
    let host = Host { missing: vec!["windows of type 2: none".to_owned()], ..Host::default() };
    let advice = Advice::by(&per_io(1000, 1, 4096), &host);
    for strategy in [Strategy::Huge, Strategy::Mw, Strategy::Frmr] {
        assert!(of(&advice, strategy).weighed().is_none(), "{strategy}");
    }
    // The cache needs nothing but the recording.
    assert!(of(&advice, Strategy::Cache).weighed().is_some());
    let text = text::text(&advice);
    assert!(text.contains("not measured: windows of type 2: none"), "{text}");
}

#[test]
fn nothing_is_advised_for_little() {
    let mut recording = per_io(100, 1, 4096);
    recording.job.wall = 1_000_000_000;
    let advice = Advice::by(&recording, &host());
    assert!(advice.proposals.iter().all(|proposal| !proposal.is_advised));
    let text = text::text(&advice);
    assert!(
        text.contains("Nothing is advised: no strategy saves 1.0 % of it, and 1.00ms."),
        "{text}"
    );
    // More of the same in a shorter run is much of it.
    let mut recording = per_io(1000, 1, 4096);
    recording.job.wall = 100_000_000;
    assert!(Advice::by(&recording, &host()).proposals.iter().any(|proposal| proposal.is_advised));
}

#[test]
fn what_many_threads_wait_for_at_a_time_is_waited_for_once() {
    // 16 threads register at the same time, each as `per_io` does, in a run of 1 s.
    let mut recording = per_io(1000, 4, 4096);
    recording.job.wall = 1_000_000_000;
    let (calls, regions) = (recording.calls.clone(), recording.regions.clone());
    for thread in 1..16 {
        let more = regions.len() as u32 * thread;
        recording.regions.extend(regions.iter().cloned().map(|mut region| {
            region.id += more;
            region.addr += u64::from(thread) << 40;
            region
        }));
        recording.calls.extend(calls.iter().cloned().map(|mut call| {
            call.region = call.region.map(|region| region + more);
            call.addr += u64::from(thread) << 40;
            call
        }));
    }
    recording.calls.sort_by_key(|call| call.begin);
    // They wait for each other: one is on a CPU at a time.
    let calls = recording.calls.iter_mut();
    calls.for_each(|call| call.cpu = Some((call.end - call.begin) / 16));
    recording.processes[0].cpu = Some(1_000_000_000);
    let advice = Advice::by(&recording, &host());
    assert_eq!(advice.spent.as_ref().unwrap().ns, 16.0 * 3_000_000.0);
    assert_eq!((advice.run.ns, advice.run.busy_ns), (48_000_000, 3_000_000));
    let told = text::text(&advice);
    assert!(
        told.contains("took 48.0ms (recorded), 0.3 % of the run and 0.3 % of its CPU"),
        "{told}"
    );
    for weighed in advice.proposals.iter().filter_map(Proposal::weighed) {
        assert!(weighed.share_of_wall <= 0.003, "{weighed:?}");
        assert!(weighed.share_of_cpu.is_some_and(|share| share <= 0.003), "{weighed:?}");
    }
    assert!(advice.proposals.iter().all(|proposal| !proposal.is_advised));
    // Of two processes each has a time of its own.
    let mut recording = per_io(1000, 4, 4096);
    recording.job.wall = 100_000_000;
    let mut other = recording.processes[0].clone();
    other.id = 2;
    recording.processes.push(other);
    let run = Advice::by(&recording, &host()).run;
    assert_eq!(run.of_wall(3_000_000.0), 0.015);
}

#[test]
fn without_registrations_there_is_no_advice() {
    for recording in [Recording::default(), Recorder::new().finish()] {
        let advice = Advice::of(&recording);
        assert_eq!(advice.proposals, []);
        assert!(text::text(&advice).starts_with("No advice: nothing was registered"));
    }
    // Their times were lost.
    let mut recording = per_io(5, 1, 4096);
    recording.calls.clear();
    let text = text::text(&Advice::by(&recording, &host()));
    assert!(text.starts_with("No advice: what registrations took was not recorded"), "{text}");
}

#[test]
fn the_text_is_ranked_and_fits_the_terminal() {
    let advice = Advice::by(&per_io(1000, 4, 4096), &host());
    let text = text::text(&advice);
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    let savings = advice.proposals.iter().filter_map(|proposal| proposal.weighed());
    assert!(savings.map(|weighed| weighed.saving_ns).is_sorted_by(|a, b| a >= b), "{text}");
    for word in ["(recorded)", "(measured now)", "Cost: ", "Risk: ", "1. ", "Assumed: "] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn this_machine_can_be_measured() {
    let host = Host::measure("mkey0", true);
    assert!(host.base.is_some() && host.window_ns.is_some() && host.fast_ns.is_some(), "{host:?}");
    assert!(host.copy_ns(4096).unwrap() > 0.0);
    let base = host.base.unwrap();
    assert!(base.register.at(4096.0) > base.register.at(1.0), "{base:?}");
}

#[test]
fn a_device_that_is_not_here_is_not_measured_by_another() {
    let host = Host::measure("none0", false);
    assert!(host.base.is_none() && host.window_ns.is_none(), "{host:?}");
    assert!(host.missing.iter().any(|why| why.contains("none0 can not be opened")), "{host:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// On squeezed memory too the library's cache registers what the naive one does.
    #[test]
    fn a_dry_cache_registers_what_the_naive_one_does(recording in sequences()) {
        let script = Script::all(&recording).remove(0);
        let run = dry::cache(&script).unwrap();
        let expected = naive_misses(&script);
        prop_assert_eq!(&run.missed, &expected);
        let missed = expected.iter().filter(|missed| **missed).count() as u64;
        prop_assert_eq!(run.hits + missed, script.ranges.len() as u64);
        prop_assert_eq!(run.most_bytes, naive_bytes(&script, &expected));
    }

    /// The pool takes one buffer for each registration, and has room for them.
    #[test]
    fn a_dry_pool_takes_a_buffer_for_each(recording in sequences()) {
        let script = Script::all(&recording).remove(0);
        let run = dry::pool(&script).unwrap();
        prop_assert_eq!(run.takes, script.ranges.len() as u64);
        let bytes: u64 = run.slabs.iter().sum();
        prop_assert!(bytes >= script.ranges.iter().map(|range| range.len).max().unwrap_or(0));
    }

    /// No recording is too odd for advice and its text.
    #[test]
    fn odd_recordings_get_advice(recording in odd()) {
        let text = text::text(&Advice::by(&recording, &host()));
        prop_assert!(text.lines().all(|line| line.chars().count() <= 120), "{}", text);
    }
}

/// The most bytes that a cache keeps: a registration that a later one contains, with the same ordering
/// and no more rights, goes.
fn naive_bytes(script: &Script, missed: &[bool]) -> u64 {
    let relaxed = mkey::Rights::RELAXED_ORDERING;
    let mut kept: Vec<(std::ops::Range<u64>, mkey::Rights)> = Vec::new();
    let mut most = 0;
    for (range, _) in script.ranges.iter().zip(missed).filter(|(_, missed)| **missed) {
        let around = range.around();
        kept.retain(|(span, rights)| {
            !(around.start <= span.start
                && span.end <= around.end
                && range.rights.contains(*rights)
                && range.rights.contains(relaxed) == rights.contains(relaxed))
        });
        kept.push((around, range.rights));
        most = most.max(kept.iter().map(|(span, _)| span.end - span.start).sum());
    }
    most
}

/// What is made once, with whatever is registered first, is saved by nobody, and is no measure of others.
#[test]
fn what_first_registrations_take_beyond_others_is_paid_by_all_strategies() {
    let mut recorder = Recorder::new();
    let first = recorder.register(0x1000_0000, 64 << 10, 10_000_000);
    for round in 0..100 {
        let id = recorder.register(round * 4096, 4096, 1500);
        recorder.deregister(id, 500);
    }
    recorder.deregister(first, 600);
    let advice = Advice::by(&recorder.finish(), &host());
    let of_first = 10_000_000.0 - (1000.0 + 20.0 * 16.0 + 480.0);
    let pool = &of(&advice, Strategy::Pool).weighed().unwrap().predicted.parts;
    let beyond = pool.iter().find(|part| part.what.starts_with("first registration")).unwrap();
    assert_eq!((beyond.times, beyond.ns, beyond.source), (101, of_first, Source::Recorded));
    let slab = pool.iter().find(|part| part.what.starts_with("slab of the pool")).unwrap();
    assert!(slab.ns < 5000.0, "{slab:?}");
}

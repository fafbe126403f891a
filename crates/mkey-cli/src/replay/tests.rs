use super::layout::Layout;
use super::left::Why;
use super::rounds::{Speed, play};
use super::sample::{OPEN, Recorder, per_io, small};
use super::script::{Act, Script};
use super::stage::Stage;
use super::strategy::Strategy;
use super::{report::Row, text};
use crate::bench::progress::Progress;
use crate::bench::stop::Stop;
use crate::device::{Opened, SOFTWARE};
use mkey_os::mapping::PageKind;
use mkey_trace::format::{Call, Origin, Pages, Recording, Region};
use proptest::prelude::*;
use std::time::Duration;

fn replayed(recording: &Recording, strategies: &[Strategy]) -> Vec<Row> {
    let opened = Opened::open(SOFTWARE, None, Duration::ZERO).unwrap();
    let (stop, progress) = (Stop::default(), Progress::new(1));
    let mut room = 1 << 30;
    let stages: Vec<Stage> = Script::all(recording)
        .into_iter()
        .map(|script| {
            Stage::new(&opened.device, script, strategies, &mut room, &stop, &progress).unwrap()
        })
        .collect();
    let time = Duration::from_millis(1);
    let rows = play(&stages, strategies, Speed::Asap, time, &stop, &progress).unwrap();
    drop(stages);
    assert_eq!(opened.device.stats().registered_bytes, 0, "all is given back");
    rows
}

fn made(rows: &[Row], strategy: Strategy) -> u64 {
    let row = rows.iter().find(|row| row.strategy == strategy).unwrap();
    let figures = row.figures().unwrap_or_else(|| panic!("{row:?}"));
    assert!(figures.left.is_empty(), "{figures:?}");
    assert!(figures.rounds >= 3);
    figures.made
}

#[test]
fn each_strategy_makes_the_regions_that_it_should() {
    let rows = replayed(&per_io(40, 4, 5000), &Strategy::ALL);
    // What is registered for good is one area.
    for (strategy, expected) in [
        (Strategy::AsRecorded, 40),
        (Strategy::Once, 4),
        (Strategy::Cache, 4),
        (Strategy::Pool, 1),
        (Strategy::Bounce, 1),
        (Strategy::Huge, 40),
        (Strategy::Mw, 1),
        (Strategy::Frmr, 1),
    ] {
        assert_eq!(made(&rows, strategy), expected, "{strategy}");
    }
    let most = |strategy| {
        rows.iter().find(|row| row.strategy == strategy).unwrap().figures().unwrap().most_bytes
    };
    assert_eq!(most(Strategy::AsRecorded), 8192);
    assert_eq!(most(Strategy::Once), 4 * 8192);
    assert_eq!(most(Strategy::Cache), 4 * 8192);
}

#[test]
fn what_is_registered_still_at_the_end_is_given_back() {
    let mut recording = small(20, 4096);
    recording.calls.retain(|call| call.verb == "ibv_reg_mr");
    recording.regions.iter_mut().for_each(|region| region.to = None);
    let rows = replayed(&recording, &Strategy::ALL);
    assert_eq!(made(&rows, Strategy::AsRecorded), 20);
    assert_eq!(made(&rows, Strategy::Mw), 1);
    assert_eq!(made(&rows, Strategy::Frmr), 1);
}

#[test]
fn processes_are_played_one_after_the_other() {
    let mut recorder = Recorder::new();
    let one = recorder.register(0, 4096, 100);
    recorder.process();
    let other = recorder.register(0, 4096, 100);
    recorder.deregister(other, 100);
    let _ = one;
    let recording = recorder.finish();
    let scripts = Script::all(&recording);
    assert_eq!(scripts.len(), 2);
    let rows = replayed(&recording, &[Strategy::AsRecorded, Strategy::Cache]);
    // Memory of one process is not that of the other.
    assert_eq!(made(&rows, Strategy::Cache), 2);
}

#[test]
fn what_can_not_be_played_is_counted_by_reason() {
    let mut recorder = Recorder::new();
    let played = recorder.register(4096, 4096, 100);
    let mut other = |origin, pages, len, access| {
        let id = recorder.register_with(1 << 20, len, access, pages, 50);
        recorder.recording.regions[id as usize - 1].origin = origin;
    };
    other(Origin::Implicit, Pages::None, u64::MAX, OPEN);
    other(Origin::Dmabuf, Pages::Device, 4096, OPEN);
    other(Origin::DeviceMemory, Pages::None, 4096, OPEN);
    other(Origin::Null, Pages::None, 0, OPEN);
    other(Origin::Memory, Pages::Device, 4096, OPEN);
    other(Origin::Memory, Pages::Small, 0, OPEN);
    other(Origin::Memory, Pages::Small, u64::MAX, OPEN);
    // Remote write without local write.
    other(Origin::Memory, Pages::Small, 4096, 2);
    recorder.deregister(played, 100);
    let failed =
        Call { verb: "ibv_reg_mr".into(), errno: 12, end: 7, process: 1, ..Call::default() };
    recorder.recording.calls.push(failed);
    let recording = recorder.finish();
    let script = Script::of(&recording, &recording.processes[0]);
    assert_eq!(script.ranges.len(), 1);
    for (why, times) in [
        (Why::Implicit, 1),
        (Why::DmaBuf, 1),
        (Why::DeviceMemory, 1),
        (Why::Null, 1),
        (Why::NoMemory, 1),
        (Why::Range, 2),
        (Why::Rights, 1),
        (Why::Failed, 1),
    ] {
        assert_eq!(script.left.of(why).times, times, "{why:?}");
    }
    assert_eq!(script.left.of(Why::Implicit).ns, 50);
    assert_eq!(script.left.of(Why::Failed).ns, 7);
    assert_eq!(script.left.sentences().count(), 8);
}

#[test]
fn nothing_to_play_is_told_with_its_reason() {
    let told =
        |recording: &Recording, process| super::chosen(recording, process).unwrap_err().words();
    let empty = Recording::default();
    assert!(told(&empty, None).contains("no registration"));
    assert!(told(&empty, Some(3)).contains("there are: none"));
    let mut null = Recorder::new();
    let id = null.register(0, 4096, 1);
    null.recording.regions[id as usize - 1].origin = Origin::Null;
    let null = null.finish();
    assert!(told(&null, None).contains("null regions: 1"));
    assert!(told(&null, Some(1)).contains("null regions: 1"));
    assert!(told(&null, Some(9)).contains("1 (pid 4001)"));
    assert_eq!(super::chosen(&per_io(3, 1, 1), Some(4001)).unwrap()[0].ranges.len(), 3);
}

#[test]
fn pages_that_are_not_to_be_had_are_told_and_the_next_ones_taken() {
    let mut recorder = Recorder::new();
    let id = recorder.register_with(0, 2 << 20, OPEN, Pages::Huge1G, 100);
    recorder.deregister(id, 100);
    let recording = recorder.finish();
    let opened = Opened::open(SOFTWARE, None, Duration::ZERO).unwrap();
    let (stop, progress) = (Stop::default(), Progress::new(1));
    let script = Script::all(&recording).remove(0);
    // A page of 1 GiB does not fit at all.
    let mut room = 64 << 20;
    let stage = Stage::new(
        &opened.device,
        script.clone(),
        &[Strategy::AsRecorded],
        &mut room,
        &stop,
        &progress,
    );
    let stage = stage.unwrap();
    assert!(stage.notes()[0].contains("do not fit"), "{:?}", stage.notes());
    let (steps, left) = stage.steps(Strategy::AsRecorded);
    assert!(steps.is_empty());
    assert_eq!(left.of(Why::NoRoom).times, 1);
    assert_eq!(left.of(Why::NoRoom).ns, 200);
}

#[test]
fn a_strategy_that_plays_only_part_is_not_compared() {
    let mut recorder = Recorder::new();
    let small = recorder.register(0, 4096, 100);
    recorder.deregister(small, 100);
    let recording = recorder.finish();
    let opened = Opened::open(SOFTWARE, None, Duration::ZERO).unwrap();
    let (stop, progress) = (Stop::default(), Progress::new(1));
    // Room for a small page, and for no huge one.
    let mut room = 64 << 10;
    let script = Script::all(&recording).remove(0);
    let strategies = [Strategy::AsRecorded, Strategy::Huge];
    let stage =
        Stage::new(&opened.device, script, &strategies, &mut room, &stop, &progress).unwrap();
    let time = Duration::from_millis(1);
    let rows = play(&[stage], &strategies, Speed::Asap, time, &stop, &progress).unwrap();
    assert_eq!(made(&rows, Strategy::AsRecorded), 1);
    let why = &rows[1].outcome.missing().unwrap().what;
    assert!(why.contains("plays 0 of 1 registrations"), "{why}");
}

/// Plays with so much room.
fn with_room(
    recording: &Recording,
    strategies: &[Strategy],
    mut room: u64,
) -> Result<Vec<Row>, String> {
    let opened = Opened::open(SOFTWARE, None, Duration::ZERO).unwrap();
    let (stop, progress) = (Stop::default(), Progress::new(1));
    let script = Script::all(recording).remove(0);
    let stage = Stage::new(&opened.device, script, strategies, &mut room, &stop, &progress);
    let time = Duration::from_millis(1);
    let rows = play(&[stage.unwrap()], strategies, Speed::Asap, time, &stop, &progress);
    rows.map_err(|error| error.to_string())
}

#[test]
fn nothing_replayed_is_an_error_with_its_reasons() {
    let mut recorder = Recorder::new();
    for number in 0..3 {
        let id = recorder.register(number << 47, 1 << 46, 100);
        recorder.deregister(id, 100);
    }
    let null = recorder.register(0, 4096, 1);
    recorder.recording.regions[null as usize - 1].origin = Origin::Null;
    let told = with_room(&recorder.finish(), &Strategy::ALL, 8 << 20).unwrap_err();
    assert!(told.contains("nothing of this recording can be replayed"), "{told}");
    assert!(told.contains("does not fit here: 3") && told.contains("null regions: 1"), "{told}");
}

#[test]
fn a_pool_registers_no_more_than_there_is_room_for() {
    let recording = small(20, 4096);
    let strategies = [Strategy::AsRecorded, Strategy::Pool, Strategy::Bounce];
    // The least pool is 1 MiB, however little is registered.
    let rows = with_room(&recording, &strategies, 512 << 10).unwrap();
    assert_eq!(made(&rows, Strategy::AsRecorded), 20);
    for row in &rows[1..] {
        let why = &row.outcome.missing().unwrap().what;
        assert!(why.contains("would register 1 MiB"), "{why}");
    }
    let rows = with_room(&recording, &strategies, 1 << 20).unwrap();
    for row in &rows[1..] {
        assert!(row.figures().unwrap().most_bytes <= 1 << 20, "{row:?}");
    }
}

#[test]
fn a_strategy_that_plays_some_says_how_many() {
    let mut recorder = Recorder::new();
    let small = recorder.register(0, 4096, 100);
    recorder.deregister(small, 100);
    let large = recorder.register(1 << 30, 1 << 20, 100);
    recorder.deregister(large, 100);
    let recording = recorder.finish();
    // Room for the first on a huge page, not for both.
    let strategies = [Strategy::AsRecorded, Strategy::Huge];
    let rows = with_room(&recording, &strategies, (4096 + (1 << 20)) + (2 << 20)).unwrap();
    assert_eq!(made(&rows, Strategy::AsRecorded), 2);
    let why = &rows[1].outcome.missing().unwrap().what;
    assert!(why.contains("plays 1 of 2 registrations"), "{why}");
}

#[test]
fn the_text_fits_the_terminal_and_names_every_strategy() {
    let recording = per_io(20, 2, 4096);
    let opened = Opened::open(SOFTWARE, None, Duration::ZERO).unwrap();
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: super::ReplayArgs,
    }
    let args = <Cli as clap::Parser>::parse_from(["mkey", "t", "--time", "100ms"]).args;
    let scripts = super::chosen(&recording, None).unwrap();
    let replayed = super::replay(&args, &recording, scripts, &opened, &Stop::default()).unwrap();
    let text = text::replayed(&replayed);
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    for strategy in Strategy::ALL {
        assert!(text.lines().any(|line| line.starts_with(strategy.name())), "{text}");
    }
    assert!(text.contains("60.0us (recorded)"), "{text}");
    let json = serde_json::to_value(&replayed).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), Strategy::ALL.len());
}

/// Ranges within 64 pages, in whatever order.
pub(crate) fn sequences() -> impl Strategy_<Value = Recording> {
    let one = (0u64..64 * 4096, 1u64..40_000, 0usize..6, any::<bool>(), 0u32..3);
    prop::collection::vec(one, 1..60).prop_map(|requests| {
        let mut recorder = Recorder::new();
        let mut live: Vec<u32> = Vec::new();
        for (addr, len, rights, relaxed, end) in requests {
            let access = [0, 1, 3, 5, 7, 0xf][rights] | u32::from(relaxed) << 20;
            live.push(recorder.register_with(addr, len, access, Pages::Small, 100));
            for _ in 0..end {
                if !live.is_empty() {
                    let id = live.remove(live.len() / 2);
                    recorder.deregister(id, 50);
                }
            }
        }
        recorder.finish()
    })
}

use proptest::strategy::Strategy as Strategy_;

/// What a cache does, in the simplest way: pages around, containment, at least the rights, the same
/// ordering.
pub(crate) fn naive_misses(script: &Script) -> Vec<bool> {
    let mut entries: Vec<(usize, std::ops::Range<u64>, mkey::Rights)> = Vec::new();
    let relaxed = mkey::Rights::RELAXED_ORDERING;
    let mut missed = vec![false; script.ranges.len()];
    for step in script.steps.iter().filter(|step| step.act == Act::Register) {
        let range = &script.ranges[step.range];
        let around = range.around();
        let hit = entries.iter().any(|(domain, span, rights)| {
            *domain == range.domain
                && span.start <= around.start
                && around.end <= span.end
                && rights.contains(range.rights)
                && rights.contains(relaxed) == range.rights.contains(relaxed)
        });
        if !hit {
            missed[step.range] = true;
            entries.push((range.domain, around, range.rights));
        }
    }
    missed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The library's cache, on memory of the recording's layout, registers what the naive one does.
    #[test]
    fn a_replayed_cache_registers_what_the_naive_one_does(recording in sequences()) {
        let script = Script::all(&recording).remove(0);
        let expected = naive_misses(&script).into_iter().filter(|missed| *missed).count() as u64;
        let rows = replayed(&recording, &[Strategy::AsRecorded, Strategy::Cache, Strategy::Once]);
        prop_assert_eq!(made(&rows, Strategy::Cache), expected);
        prop_assert_eq!(made(&rows, Strategy::Once), script.distinct().1 as u64);
        prop_assert_eq!(made(&rows, Strategy::AsRecorded), script.ranges.len() as u64);
    }

    /// Blocks of an area do not overlap.
    #[test]
    fn blocks_are_apart(recording in sequences()) {
        let layout = Layout::of(&Script::all(&recording).remove(0).ranges, None);
        for pair in layout.blocks.windows(2) {
            prop_assert_eq!(pair[0].start + pair[0].bytes(), pair[1].start);
            prop_assert!(pair[0].at.end < pair[1].at.start);
        }
    }

    /// Ranges keep their distances, lie within their blocks, and share one if they share a page.
    #[test]
    fn a_layout_keeps_relative_places(recording in sequences(), huge in any::<bool>()) {
        let ranges = Script::all(&recording).remove(0).ranges;
        let layout = Layout::of(&ranges, huge.then_some(PageKind::Huge2M));
        for (range, (block, offset)) in ranges.iter().zip(&layout.places) {
            let at = &layout.blocks[*block];
            prop_assert_eq!(at.at.start + offset, range.addr);
            prop_assert!(offset + range.len <= at.bytes());
            prop_assert_eq!(at.at.start % at.pages.size() as u64, 0);
            prop_assert_eq!(at.start % at.pages.size() as u64, 0);
            let area = layout.areas[at.area];
            prop_assert_eq!(area.pages, at.pages);
            prop_assert!(at.start + at.bytes() <= area.bytes);
            for (other, (block_of_other, _)) in ranges.iter().zip(&layout.places) {
                let (a, b) = (range.around(), other.around());
                if a.start < b.end && b.start < a.end {
                    prop_assert_eq!(block, block_of_other);
                }
            }
        }
    }

    /// No recording is too odd.
    #[test]
    fn odd_recordings_are_read_to_the_end(recording in odd()) {
        for script in Script::all(&recording) {
            for layout in [None, Some(PageKind::Huge2M), Some(PageKind::Huge1G)] {
                let layout = Layout::of(&script.ranges, layout);
                prop_assert_eq!(layout.places.len(), script.ranges.len());
            }
            let times = |act| script.steps.iter().filter(|step| step.act == act).count();
            prop_assert_eq!(times(Act::Register), script.ranges.len());
            prop_assert!(times(Act::Deregister) <= script.ranges.len());
            let _ = (script.most_bytes(), script.spent_ns());
        }
    }
}

prop_compose! {
    fn odd_region()(
        process in 0u32..3, device in 0u32..3, pd in 0u32..3,
        origin in prop::sample::select(vec![
            Origin::Memory, Origin::OnDemand, Origin::Implicit, Origin::Dmabuf,
            Origin::DeviceMemory, Origin::Null,
        ]),
        pages in prop::sample::select(vec![
            Pages::Unknown, Pages::Small, Pages::Thp, Pages::Huge2M, Pages::Huge1G, Pages::Shared,
            Pages::File, Pages::Device, Pages::None,
        ]),
        addr in prop_oneof![any::<u64>(), 0u64..1 << 22], len in prop_oneof![any::<u64>(), 0u64..1 << 22],
        access in prop_oneof![any::<u32>(), 0u32..16], from in any::<u64>(), to in any::<Option<u64>>(),
        uses in any::<[u16; 4]>(),
    ) -> Region {
        let [sends, writes, reads, recvs] = uses.map(u64::from);
        Region {
            process, device, pd, origin, pages, addr, len, access, from, to, sends, writes, reads, recvs,
            ..Region::default()
        }
    }
}

prop_compose! {
    fn odd_call()(
        process in 0u32..3,
        verb in prop::sample::select(vec!["ibv_reg_mr", "ibv_dereg_mr", "ibv_rereg_mr", "ibv_alloc_mw", "", "x"]),
        begin in any::<u64>(), end in any::<u64>(), errno in 0i32..2, region in any::<Option<u8>>(),
        stack in 0u32..4,
    ) -> Call {
        let (verb, region) = (verb.to_owned(), region.map(u32::from));
        Call { process, verb, begin, end, errno, region, stack, ..Call::default() }
    }
}

/// Recordings of which little holds together.
pub(crate) fn odd() -> impl Strategy_<Value = Recording> {
    let regions = prop::collection::vec(odd_region(), 0..20);
    let calls = prop::collection::vec(odd_call(), 0..30);
    (regions, calls, any::<u64>()).prop_map(|(regions, calls, wall)| {
        let mut recorder = Recorder::new();
        recorder.process();
        let mut recording = recorder.finish();
        recording.regions = regions;
        for (region, id) in recording.regions.iter_mut().zip(1..) {
            region.id = id;
        }
        recording.calls = calls;
        recording.job.wall = wall;
        recording
    })
}

/// How a run ended, in words.
trait InWords {
    fn words(&self) -> String;
}

impl InWords for crate::exit::End {
    fn words(&self) -> String {
        match self {
            Self::Failed(text) | Self::Usage(text) => text.clone(),
            other => panic!("{other:?}"),
        }
    }
}

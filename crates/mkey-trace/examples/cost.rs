//! What recording costs in this process: the least of many rounds, in nanoseconds.
//!
//! `cargo run --release -p mkey-trace --example cost`

use mkey_trace::raw::{Op, Verb, Wrong};
use mkey_trace::record::{Called, Entry, QueueInit, Recorder, Work};
use std::hint::black_box;
use std::time::Instant;

fn least(rounds: u32, times: u32, mut f: impl FnMut()) -> f64 {
    let round = |f: &mut dyn FnMut()| {
        let begin = Instant::now();
        f();
        begin.elapsed().as_nanos() as f64 / f64::from(times)
    };
    (0..rounds).map(|_| round(&mut f)).fold(f64::MAX, f64::min)
}

fn main() {
    let folder =
        std::path::Path::new("/dev/shm").join(format!("mkey-trace-cost-{}", std::process::id()));
    if let Err(error) = std::fs::create_dir(&folder) {
        eprintln!("{}: {error}", folder.display());
        return;
    }
    // SAFETY: no other thread is there yet.
    unsafe { std::env::set_var(mkey_trace::record::FOLDER, &folder) };
    let began = Instant::now();
    let recorder = Recorder::begin();
    println!("begin: {:.1} us", began.elapsed().as_nanos() as f64 / 1000.0);
    match recorder {
        Some(recorder) => measure(recorder),
        None => eprintln!("there is no recorder"),
    }
    let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    for file in files {
        if let Ok(bytes) = std::fs::read(file.path())
            && let Ok(file) = mkey_trace::raw::File::parse(&bytes)
        {
            let header = file.header();
            println!(
                "its own measure: post and completion {:.1} ns, calls {:.0} ns each; lost {}",
                header.post_overhead as f64 / 1000.0,
                header.calls_overhead as f64 / header.calls.max(1) as f64,
                header.lost,
            );
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
}

fn measure(recorder: &'static Recorder) {
    let device = recorder.device(1, b"mkey0", 1, true);
    let call = |verb, number: u64| Called {
        verb,
        errno: 0,
        device,
        object: 0x1000 + number * 64,
        parent: 2,
        addr: 0x10_0000_0000 + number * 4096,
        len: 4096,
        iova: 0,
        access: 7,
        lkey: number as u32 + 1,
        rkey: number as u32 + 1,
        detail: 0,
    };
    let note = |call: &Called| {
        let entered = recorder.enter();
        let left = recorder.leave();
        recorder.called(entered, left, call);
    };
    (0..1000).for_each(|number| note(&call(Verb::RegMr, number)));
    let control = least(200, 100, || {
        (0..50).for_each(|_| {
            note(&call(Verb::RegMr, 5000));
            note(&call(Verb::DeregMr, 5000));
        })
    });
    println!("a control call, of pairs of reg_mr and dereg_mr: {control:.0} ns");
    let control = least(200, 100, || (0..100).for_each(|_| note(&call(Verb::ModifyQp, 1))));
    println!("a control call without memory: {control:.0} ns");
    let clocks = least(200, 100, || {
        (0..100).for_each(|_| {
            black_box((recorder.enter(), recorder.leave()));
        })
    });
    println!("of it both times: {clocks:.0} ns");

    let init = QueueInit {
        device,
        pd: 2,
        object: 3,
        number: 4,
        kind: 2,
        sends: 128,
        recvs: 128,
        send_entries: 1,
        recv_entries: 1,
    };
    let Some(queue) = recorder.queue(&init) else { return };
    let mut id = 0;
    let mut works = |what: &str, op, depth: u64, every: u64, remote: Option<(u32, u64)>| {
        let cost = least(2000, 64, || {
            (0..64 / depth).for_each(|_| {
                for number in 0..depth {
                    id += 1;
                    let entries = [Entry {
                        addr: 0x10_0000_0000 + number * 4096,
                        len: 64,
                        lkey: number as u32 + 1,
                    }];
                    let signaled = number % every == every - 1;
                    let work = Work {
                        id,
                        op,
                        signaled,
                        inlined: false,
                        invalidates: false,
                        entries: &entries,
                        remote,
                    };
                    queue.post(recorder, black_box(&work));
                }
                for number in 0..depth {
                    if number % every == every - 1 {
                        queue.completed(
                            recorder,
                            black_box(id - (depth - 1 - number)),
                            op == Op::Recv,
                            0,
                            0,
                        );
                    }
                }
            })
        });
        println!("post and completion, {what}: {cost:.1} ns");
    };
    works("SEND, 64 in flight", Op::Send, 64, 1, None);
    works("SEND, 1 in flight", Op::Send, 1, 1, None);
    works("SEND, each 16th signaled", Op::Send, 64, 16, None);
    works("RDMA WRITE, 64 in flight", Op::Write, 64, 1, Some((9, 4096)));
    works("receive, 64 in flight", Op::Recv, 64, 1, None);

    let poll = least(2000, 1000, || (0..1000).for_each(|_| black_box(recorder).polled(0)));
    println!("an empty poll: {poll:.2} ns");
    let far = least(2000, 1000, || {
        (0..1000).for_each(|n| black_box(recorder).gone(0x1000 + n, 64, Wrong::FreedRegistered))
    });
    println!("free, beyond all regions: {far:.2} ns");
    note(&call(Verb::RegMr, 1 << 24));
    let near = least(2000, 1000, || {
        (0..1000).for_each(|n| {
            black_box(recorder).gone(0x11_0000_0000 + n * 4096, 64, Wrong::FreedRegistered)
        })
    });
    println!("free, between regions: {near:.2} ns");
}

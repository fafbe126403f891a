//! Programs whose verbs are told to the recorder of `mkey trace`: they behave as they do without, and what
//! was recorded is what they did.

use crate::c::{build_short, build_with};
use crate::preloaded::watch;
use crate::recorded::{Job, Process, work};
use crate::{ended, mkey_run, succeeds};
use mkey_trace::raw::{self, Op, USES, Use, Verb, Wrong};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A program that is recorded.
fn traced(job: &Job, program: &Path) -> Command {
    let mut command = mkey_run(&[Path::new("--only"), program]);
    command.env("MKEY_TRACE", job.folder()).env("LD_PRELOAD", watch());
    command
}

#[test]
fn so_many_of_everything_are_recorded() {
    let test = "so_many_of_everything_are_recorded";
    let Some(program) = build_short(test, include_str!("../c/traced.c")) else { return };
    let job = Job::new();
    assert_eq!(succeeds(&mut traced(&job, &program.path())), "well\n");
    let process = job.process();
    assert!(process.ended);
    assert_eq!(process.lost, 0);
    assert_eq!(process.devices.len(), 1);
    assert_eq!(&*process.devices[0].1, "mkey0");
    assert!(process.devices[0].0.soft == 1 && process.devices[0].0.guid != 0);

    let verbs: Vec<_> = process.verbs().into_iter().collect();
    let expected = [
        ("ibv_alloc_mw", (3, 0)),
        ("ibv_alloc_pd", (1, 0)),
        ("ibv_bind_mw", (3, 0)),
        // The second close is one of no device.
        ("ibv_close_device", (1, 0)),
        ("ibv_create_cq", (2, 0)),
        ("ibv_create_qp", (9, 0)),
        ("ibv_create_srq", (1, 0)),
        ("ibv_dealloc_mw", (3, 0)),
        ("ibv_dealloc_pd", (1, 1)),
        ("ibv_dereg_mr", (8, 0)),
        ("ibv_destroy_cq", (3, 1)),
        ("ibv_destroy_qp", (9, 0)),
        ("ibv_destroy_srq", (2, 1)),
        ("ibv_modify_qp", (27, 0)),
        ("ibv_open_device", (1, 0)),
        ("ibv_reg_mr", (9, 1)),
        ("ibv_reg_mr_iova", (1, 0)),
        ("ibv_rereg_mr", (2, 1)),
    ];
    assert_eq!(verbs, expected);
    for call in &process.calls {
        assert!(call.begin <= call.end && call.device != 0 && call.thread != 0 && call.stack != 0);
    }
    let failed: Vec<_> =
        process.calls.iter().filter(|c| c.errno != 0).map(|c| (c.verb, c.errno)).collect();
    let busy = |verb: Verb| (verb as u16, Errno::BUSY.raw_os_error());
    let invalid = |verb: Verb| (verb as u16, Errno::INVAL.raw_os_error());
    assert_eq!(
        failed,
        [
            invalid(Verb::RegMr),
            invalid(Verb::ReregMr),
            busy(Verb::DestroySrq),
            busy(Verb::DestroyCq),
            busy(Verb::DeallocPd)
        ]
    );
    let iova = process.calls_of(Verb::RegMrIova)[0];
    assert_eq!((iova.iova, iova.len, iova.access), (4096, 4096, 1));
    let states: Vec<_> = process.calls_of(Verb::ModifyQp).iter().map(|call| call.detail).collect();
    let of = |state: u32| states.iter().filter(|&&detail| detail == state).count();
    assert_eq!((of(0), of(1), of(2), of(3)), (1, 10, 8, 8));
    let entries: Vec<_> = process.calls_of(Verb::CreateCq).iter().map(|call| call.detail).collect();
    assert_eq!(entries, [64, 64]);

    use Op::{Atomic, Bind, LocalInv, Read, Recv, Send, Write};
    let queues: Vec<_> = process.queues.iter().map(work).collect();
    let expected: [(&[_], _, _, _); 10] = [
        // The reads beyond the third are of a list without an end, which can not be told apart.
        (&[(Send, 10), (Write, 39), (Read, 3), (Atomic, 2), (Recv, 2)], 4, 48, 3),
        (&[(Recv, 10)], 0, 10, 0),
        (&[(Send, 1), (Bind, 3)], 0, 4, 0),
        (&[(Bind, 2), (LocalInv, 1), (Recv, 1)], 0, 4, 0),
        // The shared receive queue.
        (&[(Recv, 6)], 0, 5, 0),
        (&[(Send, 5)], 0, 5, 0),
        (&[], 0, 0, 0),
        // Built call by call.
        (&[(Send, 1), (Write, 4), (Atomic, 1), (Bind, 1), (LocalInv, 1)], 1, 2, 0),
        (&[(Recv, 2)], 0, 1, 0),
        (&[(Recv, 3)], 0, 0, 0),
    ];
    for (at, (queue, expected)) in queues.iter().zip(expected).enumerate() {
        assert_eq!(*queue, (expected.0.to_vec(), expected.1, expected.2, expected.3), "{at}");
    }
    assert_eq!(queues.len(), 10);
    assert_eq!(process.queues.iter().filter(|queue| queue.lost != 0).count(), 0);
    assert_eq!(process.queues[2].invalidations, 1);

    let [thread] = &*process.threads else { panic!("{:?}", process.threads) };
    let posted: u64 = process.queues.iter().flat_map(|queue| queue.posted).sum();
    assert_eq!((thread.posts, posted), (posted, 98));
    let completed: u64 = process.queues.iter().map(|queue| queue.completed).sum();
    assert_eq!(thread.completions, completed);
    assert!(thread.empty > 0 && thread.polls > thread.empty);

    let used = |mr: &raw::Mr| {
        let all = [Use::Send, Use::Write, Use::Read, Use::Recv, Use::Bind];
        all.map(|used| mr.uses[used as usize])
    };
    // Those without a use; the one that all work names; the one whose receives were reset.
    let uses: Vec<_> = process.mrs.iter().map(used).collect();
    let none = [0; USES];
    // A window that is unbound is not bound to it.
    let all = [11, 44, 6, 21, 5];
    assert_eq!(uses, [none, none, none, none, none, none, none, all, [0, 0, 0, 3, 0]]);
    let left: Vec<_> =
        process.mrs.iter().filter(|mr| mr.dereg == 0).map(|mr| (mr.len, mr.access)).collect();
    assert_eq!(left, [(4096, 0)]);
    assert!(process.mrs.iter().all(|mr| mr.outside == 0));
    // What changed is the second's, as its keys stayed.
    assert_eq!(process.mrs[6].access, 4);

    let windows: Vec<_> = process
        .windows
        .iter()
        .map(|w| (w.kind, w.binds, w.unbinds, w.invalidations, w.dealloc != 0))
        .collect();
    assert_eq!(windows, [(1, 3, 1, 0, true), (2, 2, 0, 2, true), (2, 1, 0, 1, true)]);

    let failures: Vec<_> = process
        .failures
        .iter()
        .map(|(failure, queue)| (failure.status, failure.op, failure.times, queue.number))
        .collect();
    let number = process.queues[0].number;
    assert_eq!(failures, [(10, Write as u32, 1, number), (5, Recv as u32, 2, number)]);
    assert!(process.findings.is_empty(), "{:?}", process.findings);
}

#[test]
fn every_mistake_is_found_once() {
    let test = "every_mistake_is_found_once";
    let Some(program) = build_short(test, include_str!("../c/traced_wrong.c")) else { return };
    each_mistake_once(&program.path());
}

/// What it gives back is told of, and given back to it alone.
#[test]
fn an_allocator_of_the_program_s_is_seen_as_the_c_library_s() {
    let test = "an_allocator_of_the_program_s_is_seen_as_the_c_library_s";
    let shared = ["-shared", "-fPIC", "-fno-builtin"];
    let Some(own) = build_with(test, include_str!("../c/allocator.c"), &shared) else { return };
    let source = format!("{}\n{}", crate::c::HEAD, include_str!("../c/traced_wrong.c"));
    let own = own.path();
    let arguments = [own.to_str().unwrap(), "-libverbs", "-lpthread"];
    let Some(program) = build_with(test, &source, &arguments) else { return };
    each_mistake_once(&program.path());
}

fn each_mistake_once(program: &Path) {
    let job = Job::new();
    assert_eq!(succeeds(&mut traced(&job, program)), "well\n");
    let process = job.process();
    let mut found = BTreeMap::new();
    for finding in &process.findings {
        assert_eq!(finding.times, 1);
        assert!(finding.stack != 0 && finding.before != 0 && finding.stack != finding.before);
        *found.entry(Wrong::of(finding.wrong).unwrap()).or_insert(0) += 1;
    }
    let expected = [
        (Wrong::DeregInFlight, 1),
        (Wrong::KeyAfterDereg, 1),
        (Wrong::FreedRegistered, 3),
        (Wrong::UnmappedRegistered, 4),
        (Wrong::GoneInFlight, 1),
        (Wrong::ReceivedTwice, 1),
        (Wrong::Outside, 1),
    ];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
}

/// Without the library that tells of memory, the other mistakes are found.
#[test]
fn without_the_other_library_memory_that_goes_is_not_seen() {
    let test = "without_the_other_library_memory_that_goes_is_not_seen";
    let Some(program) = build_short(test, include_str!("../c/traced_wrong.c")) else { return };
    let job = Job::new();
    assert_eq!(succeeds(traced(&job, &program.path()).env_remove("LD_PRELOAD")), "well\n");
    let found: Vec<_> = job.process().findings.iter().map(|finding| finding.wrong).collect();
    assert_eq!(found.len(), 4, "{found:?}");
    let gone =
        [Wrong::FreedRegistered, Wrong::UnmappedRegistered, Wrong::GoneInFlight].map(|w| w as u16);
    assert!(found.iter().all(|wrong| !gone.contains(wrong)), "{found:?}");
}

#[test]
fn threads_children_and_other_programs_are_each_recorded_by_themselves() {
    let test = "threads_children_and_other_programs_are_each_recorded_by_themselves";
    let Some(program) = build_short(test, include_str!("../c/traced_many.c")) else { return };
    let job = Job::new();
    assert_eq!(succeeds(&mut traced(&job, &program.path())), "well\n");
    each_by_itself(&job, true);
}

/// A process that is killed loses nothing.
#[test]
fn what_a_killed_process_did_is_recorded() {
    let test = "what_a_killed_process_did_is_recorded";
    let Some(program) = build_short(test, include_str!("../c/traced_many.c")) else { return };
    let job = Job::new();
    let (code, _, stderr) = ended(traced(&job, &program.path()).env("KILLED", "1"));
    assert_eq!((code, &*stderr), (-1, ""));
    each_by_itself(&job, false);
}

fn each_by_itself(job: &Job, ended: bool) {
    let processes = job.processes();
    let [parent, child, became] = &*processes else { panic!("{}", processes.len()) };
    assert_eq!((parent.ended, child.ended, became.ended), (ended, true, true));
    let posts: Vec<_> = parent.threads.iter().map(|thread| thread.posts).collect();
    assert_eq!(posts, [1, 1000, 1000, 1000, 1000]);
    let writes = |process: &Process| -> u64 {
        let written = |queue: &raw::Queue| {
            assert_eq!(queue.posted[Op::Write as usize], queue.completed);
            queue.completed
        };
        process.queues.iter().map(written).sum()
    };
    assert_eq!((writes(parent), parent.queues.len()), (4001, 5));
    assert_eq!(parent.verbs()["ibv_alloc_pd"], (5, 0));
    assert!(!parent.verbs().contains_key("ibv_dereg_mr"));
    assert_eq!((writes(child), child.queues.len(), child.threads.len()), (1, 1, 1));
    assert_eq!(child.verbs()["ibv_alloc_pd"], (1, 0));
    assert!(!child.verbs().contains_key("ibv_dereg_mr"));
    assert_eq!(became.verbs().into_keys().collect::<Vec<_>>(), ["ibv_alloc_pd", "ibv_open_device"]);
    assert!(processes.iter().all(|process| process.findings.is_empty() && process.lost == 0));
}

/// Threads of a program may have little stack.
#[test]
fn a_thread_of_64_kib_begins_the_recording() {
    let test = "a_thread_of_64_kib_begins_the_recording";
    let source = "static void *all(void *unused)\n{\n\tstruct ibv_context *context = open_first();\n\t\
                  struct ibv_pd *pd = ibv_alloc_pd(context);\n\tstatic char memory[4096];\n\t\
                  struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, 0);\n\n\t\
                  CHECK(mr && ibv_dereg_mr(mr) == 0);\n\treturn unused;\n}\n\n\
                  int main(void)\n{\n\tpthread_attr_t small;\n\tpthread_t thread;\n\n\t\
                  CHECK(pthread_attr_init(&small) == 0);\n\t\
                  CHECK(pthread_attr_setstacksize(&small, 64 << 10) == 0);\n\t\
                  CHECK(pthread_create(&thread, &small, all, NULL) == 0);\n\t\
                  CHECK(pthread_join(thread, NULL) == 0);\n\tputs(\"well\");\n\treturn 0;\n}\n";
    let Some(program) = build_short(test, source) else { return };
    let job = Job::new();
    assert_eq!(succeeds(&mut traced(&job, &program.path())), "well\n");
    assert_eq!(job.process().verbs()["ibv_dereg_mr"], (1, 0));
}

/// The tests of programs that are unmodified, once more.
#[test]
fn programs_behave_as_they_do_without() {
    let test = "programs_behave_as_they_do_without";
    let programs = [
        ("abuse", include_str!("../c/abuse.c"), "well\n"),
        ("strangers", include_str!("../c/strangers.c"), "well\n"),
        ("extended", include_str!("../c/extended.c"), "well\n"),
        ("rounds", include_str!("../c/rounds.c"), "well\n"),
        ("fork", include_str!("../c/fork.c"), "200 children\n"),
    ];
    for (name, source, said) in programs {
        let Some(program) = build_short(test, source) else { return };
        let job = Job::new();
        assert_eq!(succeeds(&mut traced(&job, &program.path())), said, "{name}");
        assert!(!job.processes().is_empty(), "{name}");
    }
    let Some(program) = build_short(test, include_str!("../c/exit.c")) else { return };
    for (how, code) in [("exit", 5), ("_exit", 6), ("return", 7), ("thread", 8)] {
        let job = Job::new();
        // It may be told, on a busy machine, that its peer does not answer.
        let (got, stdout, _) = ended(traced(&job, &program.path()).env("HOW", how));
        assert_eq!((got, &*stdout), (code, ""), "{how}");
        assert_eq!(job.process().ended, how != "_exit", "{how}");
    }
}

/// Without the variable nothing of it is there.
#[test]
fn who_does_not_ask_is_not_recorded() {
    let test = "who_does_not_ask_is_not_recorded";
    let source = "int main(void)\n{\n\tstruct ibv_context *context = open_first();\n\t\
                  void *poll = *(void **)&context->ops.poll_cq;\n\tvoid *same;\n\t\
                  CHECK(ibv_close_device(context) == 0);\n\tsame = *(void **)&context->ops.poll_cq;\n\t\
                  puts(same == poll ? \"the same\" : \"another\");\n\treturn 0;\n}\n";
    let Some(program) = build_short(test, source) else { return };
    let job = Job::new();
    let mut command = traced(&job, &program.path());
    assert_eq!(succeeds(&mut command), "another\n");
    assert_eq!(job.processes().len(), 1);
    let job = Job::new();
    assert_eq!(succeeds(traced(&job, &program.path()).env("MKEY_TRACE", "")), "the same\n");
    assert_eq!(job.processes().len(), 0);
    // A folder that is none.
    let mut command = traced(&job, &program.path());
    let none = job.folder().join("none");
    assert_eq!(ended(command.env("MKEY_TRACE", none)), (0, "the same\n".into(), String::new()));
}

/// No software device, for real ones alone; which only who is recorded may ask for.
#[test]
fn real_devices_alone_can_be_recorded() {
    let test = "real_devices_alone_can_be_recorded";
    let source = "int main(void)\n{\n\tint count;\n\n\tCHECK(ibv_get_device_list(&count));\n\t\
                  printf(\"%d\\n\", count);\n\treturn 0;\n}\n";
    let Some(program) = build_short(test, source) else { return };
    let job = Job::new();
    let mut command = Command::new(program.path());
    command.env("MKEY_ONLY", "1").env("MKEY_DEVICES", "0").env("LD_PRELOAD", crate::library());
    let (code, stdout, stderr) = ended(command.env_remove("MKEY_TRACE"));
    assert_eq!((code, &*stdout), (0, "1\n"));
    assert!(stderr.contains("MKEY_DEVICES=0 is not a number from 1 to 64"), "{stderr}");
    command.env("MKEY_TRACE", job.folder());
    assert_eq!(ended(&mut command), (0, "0\n".into(), String::new()));
    assert_eq!(job.processes().len(), 0);
}

/// AddressSanitizer has functions of its own for memory, and looks for the next ones behind them.
#[test]
fn a_program_of_address_sanitizer_s_is_recorded() {
    let test = "a_program_of_address_sanitizer_s_is_recorded";
    let source = format!("{}\n{}", crate::c::HEAD, include_str!("../c/traced.c"));
    let arguments = ["-fsanitize=address", "-libverbs", "-lpthread"];
    let Some(program) = build_with(test, &source, &arguments) else { return };
    let job = Job::new();
    let mut command = traced(&job, &program.path());
    let text = succeeds(command.env("ASAN_OPTIONS", "detect_leaks=0"));
    assert_eq!(text, "well\n");
    assert_eq!(job.process().verbs()["ibv_create_qp"], (9, 0));
}

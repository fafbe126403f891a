//! A soak: threads that act as random servers and clients over one device that fails by chance, on
//! memory that they share, with every use of it checked.
//!
//! Always true, whatever happens: nobody writes into a block but its owner and the peers that hold
//! a live grant of it; a key whose end was reported opens nothing any more; data that was sent or
//! read through a live grant is what its owner wrote; nobody waits for ever; and at the end nothing
//! is left: no registration, no window, no block, no page.
//!
//! `MKEY_SOAK_SECONDS` says for how long, 5 unless set; `MKEY_SOAK_SEED` with what choices: the same
//! seed gives each thread the same, as far as what it meets is the same. Built with `--cfg
//! mkey_break_holds` or `--cfg mkey_break_end` it must fail.

mod block;
mod client;
mod end;
mod foreign;
mod ledger;
mod link;
mod numbers;
mod registrar;
mod server;
mod session;
mod watch;
mod world;

use link::Link;
use registrar::Registrar;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use watch::Watch;
use world::World;

/// Seconds after which everything has happened.
const LONG: u64 = 20;
/// Pairs of a server and a client.
const LINKS: usize = 3;

fn setting(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")),
        Err(_) => otherwise,
    }
}

#[test]
fn soak() {
    let seconds = setting("MKEY_SOAK_SECONDS", 5);
    let by_clock = std::time::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_nanos() as u64);
    let seed = setting("MKEY_SOAK_SEED", by_clock % 1_000_000);
    println!("soak: MKEY_SOAK_SEED={seed}, {seconds} s, {LINKS} servers and clients");
    let begin = Instant::now();
    let world = Arc::new(World::new(seed));
    println!("soak: the cache hears of unmapped memory by {}", world.cache.invalidation());
    let mut watch = Watch::default();
    let mut threads = Vec::new();
    for at in 0..LINKS {
        let link = Arc::new(Link::default());
        let seen = watch.thread(format!("server {at}"));
        let (with, on) = (world.clone(), link.clone());
        threads.push(thread::spawn(move || server::run(&with, &on, at as u64, &seen)));
        let seen = watch.thread(format!("client {at}"));
        let with = world.clone();
        threads.push(thread::spawn(move || client::run(&with, &link, at as u64, &seen)));
    }
    let seen = watch.thread("registrar".to_owned());
    let registrar = Arc::new(Registrar::new(seed));
    let (with, on) = (world.clone(), registrar.clone());
    threads.push(thread::spawn(move || registrar::run(&with, &on, &seen)));

    let end = begin + Duration::from_secs(seconds);
    while Instant::now() < end && !world.stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(50));
        if threads.iter().any(|thread| thread.is_finished()) {
            world.fail("a thread has ended before its time: see above".to_owned());
        }
        if let Some(stuck) = watch.stuck() {
            world.fail(stuck);
        }
    }
    world.stop.store(true, Ordering::Relaxed);
    // Nothing more goes wrong, so that what is left over is a leak.
    world.faults.stop();
    registrar.faults.stop();
    while !threads.iter().all(|thread| thread.is_finished()) {
        thread::sleep(Duration::from_millis(10));
        if let Some(stuck) = watch.stuck() {
            // Those who are stuck are left behind.
            world.fail(stuck);
            return report(&world, begin, seed);
        }
    }
    for thread in threads {
        if thread.join().is_err() {
            world.fail("a thread has panicked: see above".to_owned());
        }
    }
    println!("{}", world.counts);
    println!("faults injected: {}", world.faults.injected().len());
    let failures = world.failures();
    if !failures.is_empty() {
        return report(&world, begin, seed);
    }
    // A run that is too short has no right to say so.
    if seconds >= LONG {
        assert_eq!(world.counts.idle(), [""; 0], "never happened: the soak shows nothing of it");
    }
    registrar.finish();
    match Arc::try_unwrap(world) {
        Ok(world) => end::finish(world),
        Err(_) => panic!("a thread has ended and keeps the world"),
    }
    println!("soak: well after {:.1} s", begin.elapsed().as_secs_f64());
}

fn report(world: &World, begin: Instant, seed: u64) {
    let failures = world.failures();
    panic!(
        "after {:.1} s with MKEY_SOAK_SEED={seed}: {}",
        begin.elapsed().as_secs_f64(),
        failures.join("\n")
    );
}

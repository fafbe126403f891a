//! Pushes the parameters of a model to a peer, again and again, from buffers that the program owns.
//!
//! The buffers come from the program's own allocator (here `Vec`, elsewhere a tensor library), so
//! they can not come from a registered pool. The cache registers each when it is first pushed, and
//! finds the registration every time after: compare the first round with the others.
//!
//! Both ends are in this process, on the software RNIC, or on the device that
//! `MKEY_DEVICE` names: `cargo run --release --example parameter_push`

use anyhow::{Context, Result, ensure};
use mkey::{Access, Cache, Cq, Device, Invalidation, Mr, Pd, Qp, Region, SoftOptions, Work};
use std::time::{Duration, Instant};

const TENSORS: usize = 4;
/// Parameters of a tensor: 16 MiB.
const LEN: usize = 4 << 20;
const ROUNDS: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn main() -> Result<()> {
    let device = match std::env::var("MKEY_DEVICE") {
        Ok(name) => Device::open(&name)?,
        Err(_) => Device::soft(SoftOptions::default())?,
    };
    // The peer: memory for all of them, which may be written by who has the key.
    let peer_pd = Pd::new(&device)?;
    let peer_cq = Cq::new(&device, 16)?;
    let peer = Qp::builder(&peer_pd, &peer_cq).create()?;
    let bytes = LEN * size_of::<f32>();
    let store = Mr::builder(&peer_pd).remote_write().register(Region::new(TENSORS * bytes)?)?;

    // This end.
    let pd = Pd::new(&device)?;
    let cq = Cq::new(&device, 64)?;
    let qp = Qp::builder(&pd, &cq).create()?;
    peer.connect(&qp.endpoint())?;
    qp.connect(&peer.endpoint())?;
    // The program tells the cache before it frees memory (see the end). Where it can not,
    // `Invalidation::Events` has the kernel tell, and `Off` registers each time.
    let cache = Cache::builder(&pd).invalidation(Invalidation::Explicit).build()?;

    let mut model = vec![vec![0f32; LEN]; TENSORS];
    let mut times = Vec::new();
    for round in 1..=ROUNDS {
        // A step of training. Nothing is in flight here, so the program may write.
        for tensor in &mut model {
            tensor.fill(round as f32);
        }
        let start = Instant::now();
        let mut asking = Duration::ZERO;
        for (number, tensor) in model.iter().enumerate() {
            let asked = Instant::now();
            // Just the right that a push needs: it is only read.
            // SAFETY: `tensor` is neither written nor freed before the completions below have been
            // polled, and the cache is told before it is freed at all.
            let cached = unsafe { cache.get(tensor.as_ptr().cast(), bytes, Access::local_read()) }?;
            asking += asked.elapsed();
            let to = store.remote_key(number * bytes..(number + 1) * bytes)?;
            // Posted work keeps the registration; `cached` may go.
            qp.post(&[Work::write(&cached.into_slice(), to).id(number as u64)])?;
        }
        for _ in 0..TENSORS {
            cq.next(PATIENCE)?.context("a transfer hangs")?.succeeded()?;
        }
        println!("round {round:2}: {:.1?}, of which the cache {asking:.1?}", start.elapsed());
        times.push(asking);
    }
    // What arrived last.
    let last = store.whole().read_array::<4>(TENSORS * bytes - size_of::<f32>())?;
    ensure!(f32::from_ne_bytes(last) == ROUNDS as f32, "the last parameter did not arrive");

    // Told first, freed then.
    for tensor in model.drain(..) {
        cache.invalidate(tensor.as_ptr().cast(), bytes);
        drop(tensor);
    }
    let stats = cache.stats();
    ensure!(stats.registered == 0, "still registered: {stats:?}");
    let (cold, warm) = times.split_first().context("no rounds")?;
    let warm = warm.iter().min().context("one round")?;
    println!("registrations cost {cold:.1?} in the first round, and {warm:.1?} at best later");
    println!(
        "{} pushes: {} registrations, {} found, {} left",
        stats.gets,
        stats.registrations,
        stats.fast_hits + stats.slow_hits,
        stats.registered,
    );
    Ok(())
}

//! That nothing is left.

use crate::world::World;
use std::time::{Duration, Instant};

/// All threads have ended, and with them all that they had.
pub fn finish(world: World) {
    world.cache.flush();
    let cache = world.cache.stats();
    let (grants, fast) = (world.grants.stats(), world.fast.stats());
    println!("{grants:?}\n{fast:?}\n{cache:?}");
    // What the device would not free keeps blocks, so that comes first.
    assert_eq!((grants.in_use, grants.kept), (0, 0), "left of the windows: {grants:?}");
    assert_eq!((fast.in_use, fast.kept), (0, 0), "left of the fast registrations: {fast:?}");
    assert_eq!((cache.registered, cache.invalid_in_use), (0, 0), "left in the cache: {cache:?}");
    for (whose, pool) in [("servers'", &world.pool), ("clients'", &world.client_pool)] {
        let stats = pool.stats();
        assert_eq!(
            (stats.in_use_bytes, stats.waiting),
            (0, 0),
            "left of the {whose} pool: {stats:?}"
        );
    }
    let World { leaks, device, pd, pool, client_pd, client_pool, .. } = world;
    // Windows go before what they lie on.
    drop((world.grants, world.fast, world.cache, pd, client_pd, pool, client_pool, device));
    // The kernel gives pinned pages back in its own time.
    let end = Instant::now() + Duration::from_secs(10);
    while !leaks.leaks().is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    leaks.finish();
}

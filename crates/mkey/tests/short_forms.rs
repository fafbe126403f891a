//! The short ways of saying what is common: one slice, one completion, one error.

mod peers;

use mkey::{
    Device, Error, Mr, Pd, PeerAccess, Qp, Reason, Recv, Region, SoftOptions, WcStatus, Work,
};
use peers::{LONG, SHORT, pair};

#[test]
fn one_slice_is_posted_as_several_are() {
    let (client, server) = pair();
    let (inbox, from) = (server.memory(64), client.memory(64));
    from.write(0, b"one").expect("within");
    let one = from.part(..3).expect("within");
    for several in [false, true] {
        server.qp.post_recv(&[Recv::new(&inbox)]).expect("posted");
        let slices = vec![one.clone(), one.clone()];
        let work = if several { Work::send(&slices) } else { Work::send(&one) };
        client.qp.post(&[work.id(5)]).expect("posted");
        assert_eq!(client.done(5), WcStatus::Success);
        let length = if several { 6 } else { 3 };
        assert_eq!(server.one().byte_len, length);
        assert_eq!(&inbox.read_array(0).expect("within"), b"one");
    }
    let exposed = Mr::builder(&server.pd).remote_write().remote_read();
    let exposed = exposed.register(Region::new(64).expect("memory")).expect("mr");
    let key = exposed.remote_key(..3).expect("exposed");
    // Of one slice each.
    assert_eq!(client.writes(key, 9), WcStatus::Success);
    assert_eq!(client.reads(key), WcStatus::Success);
    assert_eq!(exposed.whole().read_array(0), Ok([9, 9, 9, 0]));
    let error = exposed.whole().read_array::<8>(exposed.len() - 7).expect_err("past the end");
    assert!(matches!(error.reason, Reason::OutOfRange { length: 8, .. }), "{error}");
}

#[test]
fn the_next_completion_is_there_or_not() {
    let (client, server) = pair();
    assert_eq!(client.cq.next(SHORT), Ok(None));
    server.expects(1);
    client.qp.post(&[Work::send_inline(b"a").id(7)]).expect("posted");
    let done = client.cq.next(LONG).expect("polled").expect("there").succeeded();
    assert_eq!(done.map(|done| done.wr_id), Ok(7));
    assert_eq!(client.cq.next(SHORT), Ok(None));
    assert_eq!(server.one().byte_len, 1);
}

#[test]
fn a_refused_post_is_an_error_like_others() {
    let (client, _server) = pair();
    let long = [0; 4096];
    let refused = client.qp.post(&[Work::send_inline(&long)]).expect_err("too long");
    assert_eq!(refused.to_string(), format!("{}, after 0 of the chain were posted", refused.error));
    let error = Error::from(refused);
    assert!(matches!(error.reason, Reason::TooMuchInline { given: 4096, .. }), "{error}");
}

#[test]
fn promise_9_errors_of_pools_and_caches_are_those_of_verbs() {
    let device = Device::soft(SoftOptions::default()).expect("device");
    let pd = Pd::new(&device).expect("pd");
    let pool = mkey::Pool::new(&pd, &mkey::PoolOptions::default().slab(1 << 20).ceiling(1 << 20));
    let pool = pool.expect("pool");
    let all = pool.alloc(1 << 20).expect("all of it");
    let full = pool.alloc(4096).expect_err("full");
    assert_eq!((full.code().to_string().as_str(), full.errno()), ("MK0028", 12));
    let error = mkey::Error::from(full);
    assert_eq!(error.verb, "pool_alloc");
    assert!(error.to_string().contains("4096 bytes asked, 0 free"), "{error}");
    drop(all);
    let cache = mkey::Cache::builder(&pd).max_bytes(4096).build().expect("cache");
    let bytes = vec![0u8; 3 * 4096];
    // SAFETY: the vector lives on, and nothing is posted.
    let error = unsafe { cache.get(bytes.as_ptr(), bytes.len(), mkey::Access::local_read()) };
    let error = mkey::Error::from(error.expect_err("too much"));
    assert_eq!((error.verb, error.code().to_string().as_str()), ("cache_get", "MK0028"));
}

#[test]
fn a_failed_completion_tells_why() {
    let pair = mkey::testing::Pair::new().expect("pair");
    let mr = Mr::builder(&pair.b.pd).remote_read();
    let mr = mr.register(Region::new(4096).expect("memory")).expect("mr");
    let key = mr.remote_key(..).expect("exposed");
    pair.a.qp.post(&[Work::write_inline(b"no", key)]).expect("posted");
    let error = pair.a.device.check(pair.next(&pair.a)).expect_err("read-only");
    assert!(error.to_string().contains("remote write wanted"), "{error}");
}

#[test]
fn errors_tell_the_way_on() {
    let (client, server) = pair();
    let says = |error: &Error, what: &str| assert!(error.to_string().contains(what), "{error}");
    let local = Mr::new(&client.pd, Region::new(64).expect("memory")).expect("mr").into_slice();
    says(&local.grant(&client.qp, PeerAccess::READ).expect_err("no windows"), "windows()");
    says(&local.remote_key().expect_err("local-only"), "remote_read()");
    let alone = Qp::builder(&client.pd, &client.cq).create().expect("qp");
    let early = alone.post(&[Work::send_inline(b"a")]).expect_err("not connected");
    says(&early.error, "connect it first");
    // Unsignaled work alone fills the queue, however often it is polled.
    let exposed = Mr::builder(&server.pd).remote_write();
    let exposed = exposed.register(Region::new(64).expect("memory")).expect("mr");
    let key = exposed.remote_key(..1).expect("exposed");
    let full = loop {
        if let Err(refused) = client.qp.post(&[Work::write_inline(b"a", key).unsignaled()]) {
            break refused.error;
        }
        assert_eq!(client.cq.next(std::time::Duration::ZERO), Ok(None));
    };
    says(&full, "unsignaled");
}

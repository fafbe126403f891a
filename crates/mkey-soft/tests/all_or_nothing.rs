//! Chains that are posted together or not at all, as `ibv_wr_complete` has them: a mistake in the last
//! work request keeps the first from having any effect.

mod common;

use common::*;
use mkey_core::address::IoAddr;
use mkey_core::data_plane::QueuePair;
use mkey_core::device::{Device, MwKind};
use mkey_core::key::Key;
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{Success, WrFlushErr};
use mkey_core::work::{BindMw, SendOp, SendWr, Sge};

#[test]
fn a_mistake_in_the_last_keeps_the_first_back() {
    let (a, b) = pair(QpKind::Rc);
    let (from, to) = (a.buffer(ALL), b.buffer(ALL));
    from.set(0, 7);
    let one = [from.sge(0, 8)];
    let many: Vec<Sge> = (0..40).map(|_| from.sge(0, 1)).collect();
    let good = SendWr::new(1, SendOp::Write(to.remote(0)), &one);
    let bad = SendWr::new(2, SendOp::Write(to.remote(64)), &many);
    // Further behind than any batch.
    let chain = std::iter::repeat_n(good, 20).chain([bad]);
    let refused = a.qp.post_send_all(chain).unwrap_err();
    assert_eq!((refused.posted, refused.error.errno()), (0, 22));
    assert_eq!((to.get(0), a.done()), (0, vec![]));
    a.qp.post_send_all([good, SendWr { wr_id: 3, ..good }].into_iter()).unwrap();
    assert_eq!((to.get(0), a.done()), (7, vec![(1, Success), (3, Success)]));
}

#[test]
fn a_window_keeps_its_key_unless_all_are_posted() {
    let (a, b) = pair(QpKind::Rc);
    let (from, to) = (a.buffer(ALL), b.buffer(ALL));
    let window = a.device.alloc_mw(a.pd, MwKind::Type2).unwrap();
    let new_key = Key(window.rkey.0.0 + 1);
    let bind = SendOp::BindMw(BindMw {
        mw: window.rkey,
        new_key: mkey_core::key::Rkey(new_key),
        mr: from.info.lkey,
        address: IoAddr(from.sge(0, 0).address.0),
        length: 64,
        rights: Rights::REMOTE_WRITE,
    });
    let one = [from.sge(0, 8)];
    let bad = SendWr::new(2, bind, &one);
    let chain = [SendWr::new(1, bind, &[]), bad];
    assert!(a.qp.post_send_all(chain.into_iter()).is_err(), "a bind has no entries");
    assert_eq!(a.done(), []);
    // Had the first been posted, the window would have the new key, and a write by it would succeed.
    b.post(3, SendOp::Write(from.remote_by(mkey_core::key::Rkey(new_key))), &[to.sge(0, 8)]);
    assert!(b.done().iter().all(|(_, status)| *status != Success));
}

#[test]
fn there_is_room_for_all_or_for_none() {
    let (a, b) = pair(QpKind::Rc);
    let (from, to) = (a.buffer(ALL), b.buffer(ALL));
    let one = [from.sge(0, 8)];
    let wr = |wr_id| SendWr::new(wr_id, SendOp::Write(to.remote(0)), &one);
    // As many as the queue takes.
    let depth = 128;
    let refused = a.qp.post_send_all((0..=depth).map(wr)).unwrap_err();
    assert_eq!((refused.posted, refused.error.errno()), (0, 12));
    assert_eq!(a.done(), []);
    a.qp.post_send_all((0..depth).map(wr)).unwrap();
    assert_eq!(a.qp.post_send_all([wr(0)].into_iter()).unwrap_err().error.errno(), 12);
    assert_eq!(a.done().len(), depth as usize);
    a.qp.post_send_all([].into_iter()).unwrap();
    a.qp.post_send_all([wr(9)].into_iter()).unwrap();
    assert_eq!(a.done(), [(9, Success)]);
}

#[test]
fn what_is_posted_to_a_queue_in_error_is_flushed() {
    let (a, b) = pair(QpKind::Rc);
    let (from, to) = (a.buffer(ALL), b.buffer(ALL));
    let one = [from.sge(0, 8)];
    let wr = |wr_id| SendWr::new(wr_id, SendOp::Write(to.remote(0)), &one);
    a.go(QpState::Err);
    a.qp.post_send_all((1..=2).map(wr)).unwrap();
    assert_eq!(a.done(), [(1, WrFlushErr), (2, WrFlushErr)]);
    a.go(QpState::Reset);
    assert_eq!(a.qp.post_send_all((1..=2).map(wr)).unwrap_err().error.errno(), 22);
    assert_eq!(a.qp.post_send(&[wr(1)]).unwrap_err().error.errno(), 22);
}

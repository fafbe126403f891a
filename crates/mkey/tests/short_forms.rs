//! The short ways of saying what is common: one slice, one completion, one error.

mod peers;

use mkey::{Error, Mr, Reason, Recv, Region, WcStatus, Work};
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

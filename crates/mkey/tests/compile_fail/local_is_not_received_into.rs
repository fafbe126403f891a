//! Promise 2: memory that is lent as a slice is not named by a receive.
fn f(qp: &mkey::Qp, local: mkey::Local) {
    let _ = qp.post_recv(&[mkey::Recv::new(&[local])]); //~ E0277
}

fn main() {}

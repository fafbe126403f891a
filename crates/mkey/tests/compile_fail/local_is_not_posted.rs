//! Promise 2: memory that is lent as a slice is not named by work.
fn f(qp: &mkey::Qp, local: mkey::Local) {
    let _ = qp.post(&[mkey::Work::send(&[local])]); //~ E0277
}

fn main() {}

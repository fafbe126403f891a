//! Promise 3: what a grant gives is not what a registration has.
fn f(builder: mkey::MrBuilder<'_>) {
    let _ = builder.access(mkey::PeerAccess::WRITE); //~ E0308
}

fn main() {}

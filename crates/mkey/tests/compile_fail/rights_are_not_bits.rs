//! Promise 3: a registration takes rights that have been validated.
fn f(builder: mkey::MrBuilder<'_>) {
    let _ = builder.access(mkey::Rights::REMOTE_WRITE); //~ E0308
}

fn main() {}

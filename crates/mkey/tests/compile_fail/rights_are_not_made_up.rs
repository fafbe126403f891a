//! Promise 3: REMOTE_WRITE without LOCAL_WRITE can not be written.
fn f(access: &mut mkey::Access) {
    access.0 = mkey::Rights::REMOTE_WRITE; //~ E0616
}

fn main() {}

//! Promise 2: registered memory is not borrowed by its former owner.
fn f(pd: &mkey::Pd, mut region: mkey::Region) {
    let mr = mkey::Mr::new(pd, region);
    region.as_mut_slice()[0] = 1; //~ E0382
    drop(mr);
}

fn main() {}

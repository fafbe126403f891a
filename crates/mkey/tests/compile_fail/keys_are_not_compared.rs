//! Promise 5: a local key is never a remote key, whatever their numbers are.
fn f(mr: &mkey::Mr) -> bool {
    let same: fn(&mkey::Lkey, &mkey::Lkey) -> bool = PartialEq::eq;
    same(&mr.info().lkey, &mr.info().rkey) //~ E0308
}

fn main() {}

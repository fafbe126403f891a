//! Promises 2 and 4: work that the library does not know of is promised away by who opened the device.
fn f(device: std::sync::Arc<mkey::SoftDevice>) -> mkey::Device {
    mkey::Device::from_soft(device) //~ E0133
}

fn main() {}

use super::*;

/// An endpoint in a meeting place of its own, and a driver that nothing drives.
fn endpoint() -> (tempfile::TempDir, Arc<Endpoint>, &'static Driver) {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::make(&place.path().join("mkey"), &["port".to_owned()]).unwrap();
    let endpoint = Endpoint::new(Gid([1; 16]), folder, 0).unwrap();
    (place, endpoint, Driver::without_thread())
}

/// Who connects and says what nobody understands, or hangs up, leaves nothing behind.
#[test]
fn who_does_not_belong_here_leaves_nothing_behind() {
    let (_place, endpoint, driver) = endpoint();
    endpoint.open(driver);
    assert_eq!(driver.watched(), 1, "where peers connect");
    let number = endpoint.number(0, 0).unwrap() >> BLOCK_BITS;
    let visitors = [(); 3].map(|()| endpoint.folder.connect(number).unwrap());
    endpoint.welcome();
    assert_eq!(driver.watched(), 4, "they may say something still");
    let [garbage, hung_up, silent] = visitors;
    rustix::net::send(&garbage, b"hello", rustix::net::SendFlags::empty()).unwrap();
    drop(hung_up);
    endpoint.welcome();
    assert_eq!((driver.watched(), lock(&endpoint.guests).len()), (2, 1), "the silent one is left");
    drop(endpoint);
    assert_eq!(driver.watched(), 0);
    drop(silent);
}

/// Whose peers can not connect says so, and tries again when a connection is made.
#[test]
fn who_can_not_be_reached_says_so() {
    let (_place, endpoint, driver) = endpoint();
    let number = endpoint.number(0, 0).unwrap() >> BLOCK_BITS;
    // In the place of the socket.
    let obstacle = endpoint.folder.path().join(format!("{number}.sock"));
    std::fs::create_dir(&obstacle).unwrap();
    assert_eq!(endpoint.trouble(), None, "nobody has asked for it yet");
    endpoint.open(driver);
    let trouble = endpoint.trouble().unwrap();
    assert!(trouble.contains("in use"), "{trouble}");
    std::fs::remove_dir(&obstacle).unwrap();
    endpoint.open(driver);
    assert_eq!(endpoint.trouble(), None);
    assert!(endpoint.folder.connect(number).is_ok());
}

/// All numbers lead to this process, those that it had before it could be reached and those of later.
#[test]
fn each_block_is_reached() {
    let (_place, endpoint, driver) = endpoint();
    let first = endpoint.number(0, 0).unwrap();
    let second = endpoint.number(0, 1 << BLOCK_BITS).unwrap();
    endpoint.open(driver);
    let third = endpoint.number(0, 2 << BLOCK_BITS).unwrap();
    for number in [first, second, third] {
        assert!(endpoint.owns(number));
        assert!(endpoint.folder.connect(number >> BLOCK_BITS).is_ok(), "{number:#x}");
    }
}

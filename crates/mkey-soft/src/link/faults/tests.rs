use super::*;
use crate::clock::VirtualClock;
use crate::link::Envelope;
use mkey_wire::body::Body;
use mkey_wire::bth::Fields;
use mkey_wire::packet::Repr;
use mkey_wire::request::{Request, Send, Tail};
use mkey_wire::u24::{Psn, Qpn};

/// A path that remembers what was sent by it.
#[derive(Debug, Default)]
struct Log {
    sent: Mutex<Vec<(u32, Vec<u8>, bool)>>,
    full: Mutex<bool>,
}

impl Path for Log {
    fn mtu(&self) -> Option<u32> {
        None
    }

    fn window(&self) -> u32 {
        1
    }

    fn send(&self, packet: &Outbound, fill: &mut Fill<'_>) -> Result<(), Unsent> {
        if *lock(&self.full) {
            return Err(Unsent::Full);
        }
        let mut payload = vec![0; packet.length];
        assert!(fill(Room::of(&mut payload)));
        let psn = packet.repr.fields.psn.get();
        lock(&self.sent).push((psn, payload, packet.damage.is_some()));
        Ok(())
    }
}

struct Scene {
    clock: Arc<VirtualClock>,
    log: Arc<Log>,
    weather: Arc<Weather>,
    path: Arc<dyn Path>,
}

impl Scene {
    fn new(faults: &str) -> Self {
        let (clock, log) = (Arc::new(VirtualClock::new()), Arc::new(Log::default()));
        let weather = Weather::new(faults.parse().unwrap(), clock.clone());
        let path = weather.over(log.clone());
        Self { clock, log, weather, path }
    }

    fn send(&self, psn: u32) {
        assert_eq!(send(&*self.path, psn), Ok(()));
    }

    fn psns(&self) -> Vec<u32> {
        lock(&self.log.sent)
            .iter()
            .map(|(psn, payload, _)| {
                assert_eq!(payload[..], [*psn as u8], "each has its own payload");
                *psn
            })
            .collect()
    }
}

fn send(path: &dyn Path, psn: u32) -> Result<(), Unsent> {
    let fields = Fields::new(Qpn::default(), Psn::wrapping(psn));
    let body = Body::RcRequest(Request::Send(Send::Only(Tail::Plain)));
    let packet = Outbound {
        repr: Repr { fields, body },
        length: 1,
        envelope: Envelope::default(),
        damage: None,
    };
    path.send(&packet, &mut |mut room| {
        room.put(Bytes::of(&[psn as u8]));
        true
    })
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let all = |seed: u64| {
        let scene = Scene::new(&format!("loss=10%,dup=10%,reorder=10%,corrupt=10%,seed={seed}"));
        (0..1000).for_each(|psn| scene.send(psn));
        lock(&scene.log.sent).clone()
    };
    assert_eq!(all(1), all(1));
    assert_ne!(all(1), all(2));
    let sent = all(3);
    assert!((900..1100).contains(&sent.len()), "{}", sent.len());
    let damaged = sent.iter().filter(|(.., damaged)| *damaged).count();
    assert!((60..150).contains(&damaged), "{damaged}");
}

/// One setting does not change what another one does.
#[test]
fn faults_are_drawn_apart() {
    let lost = |faults| {
        let scene = Scene::new(faults);
        (0..500).for_each(|psn| scene.send(psn));
        let psns = scene.psns();
        (0..500).filter(|psn| !psns.contains(psn)).collect::<Vec<u32>>()
    };
    let alone = lost("loss=5%,seed=4");
    assert!(!alone.is_empty());
    assert_eq!(lost("loss=5%,dup=50%,seed=4"), alone);
}

#[test]
fn what_is_late_comes_after_the_next_or_after_a_while() {
    let scene = Scene::new("reorder=30%,seed=5");
    (0..100).for_each(|psn| scene.send(psn));
    scene.clock.advance_to(LATE * 2);
    scene.weather.release(scene.clock.now());
    let psns = scene.psns();
    assert!(!psns.is_sorted());
    let mut sorted = psns.clone();
    sorted.sort();
    assert_eq!(sorted, (0..100).collect::<Vec<_>>(), "none is missing");
    assert_eq!(scene.weather.next(), None);
}

#[test]
fn what_is_delayed_comes_in_order_when_it_is_due() {
    let scene = Scene::new("delay=1ms");
    let ms = Duration::from_millis;
    scene.send(1);
    scene.clock.advance_to(Duration::from_micros(500));
    scene.send(2);
    assert_eq!(scene.weather.next(), Some(ms(1)));
    assert!(!scene.weather.release(Duration::from_micros(999)));
    assert!(scene.weather.release(ms(1)));
    assert_eq!(scene.psns(), [1]);
    assert!(scene.weather.release(ms(2)));
    assert_eq!(scene.psns(), [1, 2]);
}

/// What finds no room is not lost.
#[test]
fn what_finds_no_room_is_sent_later() {
    let scene = Scene::new("dup=100%");
    *lock(&scene.log.full) = true;
    scene.send(1);
    *lock(&scene.log.full) = false;
    scene.send(2);
    assert!(scene.psns().is_empty(), "none overtakes");
    scene.clock.advance_to(Duration::from_millis(5));
    scene.weather.release(scene.clock.now());
    assert_eq!(scene.psns(), [1, 1, 2, 2]);
}

/// A path that is full holds up what follows on it, in order, and nothing else.
#[test]
fn who_is_full_holds_up_nobody_else() {
    let scene = Scene::new("delay=1ms");
    let other = Arc::new(Log::default());
    let beside = scene.weather.over(other.clone());
    *lock(&scene.log.full) = true;
    scene.send(1);
    send(&*beside, 7).unwrap();
    let ms = Duration::from_millis;
    scene.clock.advance_to(ms(1) / 2);
    scene.send(2);
    scene.clock.advance_to(ms(1));
    assert!(scene.weather.release(ms(1)));
    assert_eq!(lock(&other.sent).len(), 1, "it is not held up");
    *lock(&scene.log.full) = false;
    scene.send(3);
    for at in 3..10 {
        scene.clock.advance_to(ms(at) / 2);
        scene.weather.release(ms(at) / 2);
    }
    assert_eq!(scene.psns(), [1, 2, 3]);
    assert_eq!(scene.weather.next(), None);
}

/// Who sends faster than it is let go on has no memory without end.
#[test]
fn what_is_on_its_way_is_bounded() {
    let scene = Scene::new("delay=1ms,reorder=10%,dup=10%");
    let sent = (0..).take_while(|&psn| send(&*scene.path, psn % 256) == Ok(())).count();
    assert!(sent > 1000, "{sent}");
    assert!(lock(&scene.weather.state).bytes < MOST + 1024);
    scene.clock.advance_to(Duration::from_millis(3));
    scene.weather.release(scene.clock.now());
    assert_eq!(lock(&scene.weather.state).bytes, 0, "all is gone");
    assert_eq!(send(&*scene.path, 1), Ok(()));
}

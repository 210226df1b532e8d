//! What the proxy does to a connection, behaviour by behaviour, with plain sockets on both sides.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::support::servers::{Behaviour, Proxy};
use crate::support::{DEADLINE, until};

/// A proxy, and the server that it stands before.
struct Network {
    server: TcpListener,
    proxy: Proxy,
}

impl Network {
    fn new() -> Network {
        let server = TcpListener::bind("127.0.0.1:0").expect("a listener");
        server.set_nonblocking(true).expect("one that does not block");
        let proxy = Proxy::start(server.local_addr().expect("an address"));
        Network { server, proxy }
    }

    /// Both ends of a connection through the proxy.
    fn connect(&self) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(self.proxy.addr()).expect("connected");
        let (server, _) = until("the server sees it", || self.server.accept().ok());
        server.set_nonblocking(false).expect("one that blocks");
        for end in [&client, &server] {
            end.set_read_timeout(Some(DEADLINE)).expect("a time-out");
        }
        (client, server)
    }

    fn refuses(&self) -> bool {
        TcpStream::connect(self.proxy.addr()).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    }
}

/// Sends on one end and receives on the other.
#[track_caller]
fn arrives(mut from: &TcpStream, mut to: &TcpStream, bytes: &[u8]) {
    from.write_all(bytes).expect("sent");
    let mut received = vec![0; bytes.len()];
    to.read_exact(&mut received).expect("received");
    assert_eq!(received, bytes);
}

/// All that still arrives before a reset.
#[track_caller]
fn until_reset(mut end: &TcpStream) -> Vec<u8> {
    let (mut received, mut bytes) = (Vec::new(), [0; 1024]);
    loop {
        match end.read(&mut bytes) {
            Ok(0) => panic!("it ended without a reset, after {received:?}"),
            Ok(length) => received.extend_from_slice(&bytes[..length]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                return received;
            }
        }
    }
}

#[test]
fn pass_forwards_both_ways_and_ends_each_way_by_itself() {
    let network = Network::new();
    let (client, server) = network.connect();
    arrives(&client, &server, b"a question");
    // No more than the kernel and the proxy hold: nobody reads while this end writes.
    arrives(&server, &client, &vec![7; 1 << 20]);
    client.shutdown(Shutdown::Write).expect("shut down");
    assert_eq!((&server).read(&mut [0; 8]).expect("the end"), 0);
    arrives(&server, &client, b"an answer all the same");
}

#[test]
fn delay_takes_its_time_in_each_direction_and_for_all_bytes_at_once() {
    const LATER: Duration = Duration::from_millis(40);
    let network = Network::new();
    let (client, server) = network.connect();
    network.proxy.set(Behaviour::Delay(LATER));
    let started = Instant::now();
    arrives(&client, &server, b"a question");
    arrives(&server, &client, &vec![7; 1 << 19]);
    let took = started.elapsed();
    assert!(took >= 2 * LATER, "{took:?}");
}

#[test]
fn refuse_is_felt_by_new_connections_only() {
    let network = Network::new();
    let (client, server) = network.connect();
    network.proxy.set(Behaviour::Refuse);
    assert!(network.refuses());
    arrives(&client, &server, b"still there");
    network.proxy.set(Behaviour::Pass);
    network.connect();
}

#[test]
fn cut_resets_what_is_open_and_refuses_what_is_new() {
    let network = Network::new();
    let (client, server) = network.connect();
    network.proxy.set(Behaviour::Cut);
    assert!(until_reset(&client).is_empty() && until_reset(&server).is_empty());
    assert!(network.refuses());
    network.proxy.set(Behaviour::Pass);
    let (client, server) = network.connect();
    arrives(&client, &server, b"back again");
}

#[test]
fn bytes_to_the_server_are_lost_and_never_missed_by_a_stream_that_goes_on() {
    let network = Network::new();
    let (client, server) = network.connect();
    arrives(&client, &server, b"before");
    network.proxy.set(Behaviour::DropToServer);
    (&client).write_all(b"lost").expect("sent");
    until("they are lost", || (network.proxy.lost_bytes() == 4).then_some(()));
    arrives(&server, &client, b"this way is open");
    assert_eq!(network.proxy.carried_bytes(), 6 + 16, "what was lost is not among them");
    network.proxy.set(Behaviour::Pass);
    assert!(until_reset(&server).is_empty(), "no stream goes on after a hole");
    until_reset(&client);
}

#[test]
fn bytes_to_the_client_are_lost_while_the_server_hears_all() {
    let network = Network::new();
    network.proxy.set(Behaviour::DropToClient);
    let (client, server) = network.connect();
    arrives(&client, &server, b"a question");
    (&server).write_all(b"an answer").expect("sent");
    until("it is lost", || (network.proxy.lost_bytes() == 9).then_some(()));
    network.proxy.set(Behaviour::Cut);
    assert!(until_reset(&client).is_empty());
}

#[test]
fn a_connection_is_cut_after_so_many_bytes_of_the_server() {
    let network = Network::new();
    network.proxy.set(Behaviour::CutAfterServerBytes(5));
    let (client, server) = network.connect();
    arrives(&client, &server, b"a long question");
    (&server).write_all(b"12345678").expect("sent");
    assert_eq!(until_reset(&client), b"12345");
    until_reset(&server);

    // One that says no more than that is not touched.
    let (mut client, server) = network.connect();
    (&server).write_all(b"12345").expect("sent");
    drop(server);
    let mut received = Vec::new();
    client.read_to_end(&mut received).expect("an end without a reset");
    assert_eq!(received, b"12345");
}

#[test]
fn the_answer_to_the_next_pack_is_dropped_and_no_other() {
    let network = Network::new();
    network.proxy.set(Behaviour::DropAnswerOfNextPush);
    let (pushing, pushed_to) = network.connect();
    let (other, others_server) = network.connect();
    arrives(&pushed_to, &pushing, b"the refs");
    // In two halves, as the network may deliver it.
    arrives(&pushing, &pushed_to, b"the commands, a PA");
    arrives(&pushing, &pushed_to, b"CK of objects");
    (&pushed_to).write_all(b"ok").expect("sent");
    until("it is lost", || (network.proxy.lost_bytes() == 2).then_some(()));
    arrives(&pushing, &pushed_to, b"and more objects");
    arrives(&other, &others_server, b"PACK");
    arrives(&others_server, &other, b"ok");
    drop(pushed_to);
    assert!(until_reset(&pushing).is_empty(), "its client hears of it only when the server is done");
    assert_eq!(network.proxy.dropped_answers(), 1);
}

#[test]
fn flapping_goes_down_and_comes_up_again() {
    let network = Network::new();
    let turn = Duration::from_millis(60);
    let (client, _server) = network.connect();
    network.proxy.set(Behaviour::Flap { up: turn, down: turn });
    until_reset(&client);
    until("it is up again", || TcpStream::connect(network.proxy.addr()).ok());
    until("it is down again", || network.refuses().then_some(()));
}

#[test]
fn a_proxy_ends_at_once_with_its_connections_open() {
    let network = Network::new();
    let (mut client, _server) = network.connect();
    network.proxy.set(Behaviour::Delay(Duration::from_secs(3600)));
    client.write_all(b"on the way").expect("sent");
    drop(network.proxy);
    let ended = client.read(&mut [0; 8]);
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

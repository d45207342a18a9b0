use super::*;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

struct Program {
    life: Lifecycle,
    signal: UnboundedSender<&'static str>,
    ended: tokio::task::JoinHandle<Ended>,
}

fn program(drain_timeout: Duration) -> Program {
    let life = Lifecycle::new("test", drain_timeout);
    let (signal, signals) = unbounded_channel();
    let waiting = life.clone();
    let ended = tokio::spawn(async move { waiting.wait(signals).await });
    Program { life, signal, ended }
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_signal_lets_components_finish_and_exits_with_zero() {
    let p = program(LONG);
    let stop = p.life.token();
    p.life.spawn("loop", async move {
        stop.cancelled().await;
        tokio::task::yield_now().await;
        Ok(())
    });
    p.signal.send("SIGTERM").unwrap();
    let ended = p.ended.await.unwrap();
    assert_eq!((ended.status(), ended), (0, Ended::Clean));
}

#[tokio::test]
async fn a_component_that_fails_stops_the_others_and_the_status_is_not_zero() {
    let p = program(LONG);
    let stop = p.life.token();
    p.life.spawn("healthy", async move {
        stop.cancelled().await;
        Ok(())
    });
    p.life.spawn("broken", async { Err(anyhow::anyhow!("disk").context("cannot write")) });
    let ended = p.ended.await.unwrap();
    assert_eq!((ended.status(), ended), (1, Ended::Failed("broken: cannot write: disk".into())));
}

#[tokio::test]
async fn a_loop_that_ends_unasked_stops_the_program() {
    let p = program(LONG);
    p.life.spawn("loop", async { Ok(()) });
    assert_eq!(p.ended.await.unwrap(), Ended::Failed("loop: ended although nobody asked it to".into()));
}

#[tokio::test]
async fn finite_work_may_end_at_any_time() {
    let p = program(LONG);
    p.life.spawn_finite("partition 3", async { Ok(()) });
    let thread = p.life.spawn_thread("slot 3", || Ok(())).unwrap();
    tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
    p.life.component("slot 4").finish();
    p.signal.send("SIGTERM").unwrap();
    assert_eq!(p.ended.await.unwrap(), Ended::Clean);
}

#[tokio::test]
async fn a_panic_in_a_task_or_a_thread_stops_the_program() {
    let p = program(LONG);
    p.life.spawn("loop", async { panic!("on purpose") });
    assert_eq!(p.ended.await.unwrap(), Ended::Failed("loop: panicked".into()));

    let p = program(LONG);
    let thread = p.life.spawn_thread("slot 3", || panic!("on purpose")).unwrap();
    assert!(tokio::task::spawn_blocking(move || thread.join()).await.unwrap().is_err());
    assert_eq!(p.ended.await.unwrap(), Ended::Failed("slot 3: panicked".into()));
}

#[tokio::test]
async fn a_dropped_handle_stops_the_program() {
    let p = program(LONG);
    drop(p.life.component("slot 3"));
    assert_eq!(p.ended.await.unwrap(), Ended::Failed("slot 3: died".into()));
}

#[tokio::test]
async fn a_drain_that_takes_too_long_names_who_was_not_done() {
    let p = program(Duration::from_millis(20));
    p.life.spawn("stuck", std::future::pending());
    p.signal.send("SIGTERM").unwrap();
    let ended = p.ended.await.unwrap();
    assert_eq!((ended.status(), ended), (3, Ended::Undrained(vec!["stuck".into()])));
}

#[tokio::test]
async fn a_second_signal_ends_the_program_at_once() {
    let p = program(LONG);
    p.life.spawn("stuck", std::future::pending());
    p.signal.send("SIGTERM").unwrap();
    p.signal.send("SIGINT").unwrap();
    let ended = p.ended.await.unwrap();
    assert_eq!((ended.status(), ended), (130, Ended::CutShort(vec!["stuck".into()])));
}

use crate::world::{deps, numbers, sql};
use compensator::Sweeper;
use protocol::state::TaskState;
use runtime::store::{position, source};
use runtime::testing::TestPipeline;
use schemas::ids::{RowId, Slot, SourceId};
use tokio_util::sync::CancellationToken;

const WEEK_MS: i64 = 7 * 24 * 3_600_000;

struct World {
    pipeline: TestPipeline,
    tasks: SourceId,
    now: i64,
}

impl World {
    /// A source `tasks` with two partitions, of which commands below 50 are confirmed.
    async fn fresh() -> World {
        let pipeline = TestPipeline::fresh(1, 1).await;
        let now = pipeline.db.db.now().await.unwrap();
        let mut session = pipeline.db.db.session().await.unwrap();
        let tasks = source::register(&mut session, "tasks", [9; 16]).await.unwrap();
        for partition in 0..2 {
            position::create(&mut session, tasks, partition, 50).await.unwrap();
        }
        drop(session);
        World { pipeline, tasks, now }
    }

    fn id(&self, partition: i32, offset: i64) -> u64 {
        RowId::pack(self.tasks, partition, offset).unwrap().0
    }

    /// A task that was accepted two weeks ago.
    async fn task(&self, id: u64, state: TaskState, finished_at: Option<i64>) {
        let (state, created_at) = (state.code(), self.now - 2 * WEEK_MS);
        let finished_at = finished_at.map_or("NULL".into(), |at| at.to_string());
        let text = format!(
            "INSERT INTO task (id, identity, state, shard, due_at, task_id, callback_topic, content_hash, gen, attempt, \
             created_at, finished_at) VALUES ({id}, UNHEX(LPAD(HEX({id}), 32, '0')), {state}, 0, 5, '{id}', 'c', \
             REPEAT('h', 16), 1, 1, {created_at}, {finished_at})"
        );
        sql(&self.pipeline, text).await;
    }

    async fn kept(&self) -> Vec<u64> {
        numbers(&self.pipeline, "SELECT id FROM task ORDER BY id".into()).await
    }

    async fn sweep(&self, file: &str) -> u64 {
        let mut sweeper = Sweeper::new(deps(&self.pipeline, file), Slot(0));
        sweeper.sweep(&CancellationToken::new()).await.unwrap()
    }
}

#[tokio::test]
async fn final_tasks_past_their_retention_are_forgotten_and_no_others() {
    let world = World::fresh().await;
    let (old, young) = (Some(world.now - WEEK_MS - 1_000), Some(world.now - WEEK_MS + 60_000));
    let id = |offset| world.id(0, offset);
    world.task(id(1), TaskState::Done, old).await;
    world.task(id(2), TaskState::Dead, old).await;
    world.task(id(3), TaskState::Cancelled, old).await;
    world.task(id(4), TaskState::Done, young).await;
    world.task(id(5), TaskState::Scheduled, None).await;
    world.task(id(6), TaskState::Running, None).await;
    world.task(world.id(1, 7), TaskState::Done, old).await;
    assert_eq!(world.sweep("").await, 4);
    assert_eq!(world.kept().await, [id(4), id(5), id(6)]);
}

#[tokio::test]
async fn a_task_of_which_a_change_speaks_is_kept_until_it_is_answered() {
    let world = World::fresh().await;
    let (id, old) = (world.id(0, 1), Some(world.now - WEEK_MS - 1_000));
    world.task(id, TaskState::Done, old).await;
    sql(
        &world.pipeline,
        format!("INSERT INTO `change` (command, id, gen, kind, received_at) VALUES (1, {id}, 1, 2, 0)"),
    )
    .await;
    assert_eq!(world.sweep("").await, 0);
    sql(&world.pipeline, "DELETE FROM `change`".into()).await;
    assert_eq!(world.sweep("").await, 1);
}

#[tokio::test]
async fn a_task_whose_command_is_not_confirmed_is_kept() {
    let world = World::fresh().await;
    let old = Some(world.now - WEEK_MS - 1_000);
    world.task(world.id(0, 49), TaskState::Done, old).await;
    world.task(world.id(0, 50), TaskState::Done, old).await;
    assert_eq!(world.sweep("").await, 1);
    assert_eq!(world.kept().await, [world.id(0, 50)]);
}

#[tokio::test]
async fn a_sweep_goes_through_the_table_chunk_by_chunk() {
    let world = World::fresh().await;
    let old = Some(world.now - WEEK_MS - 1_000);
    for offset in 0..20 {
        let (state, finished_at) =
            if offset % 5 == 0 { (TaskState::Scheduled, None) } else { (TaskState::Done, old) };
        world.task(world.id(0, offset), state, finished_at).await;
    }
    assert_eq!(world.sweep("[purge]\nchunk = 3\npause = \"1ms\"\n").await, 16);
    assert_eq!(world.kept().await, [0, 5, 10, 15].map(|offset| world.id(0, offset)));
}

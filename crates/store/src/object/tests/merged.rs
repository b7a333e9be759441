//! Small extents that are merged while others write.

use std::time::Duration;

use super::*;

const FAR: u64 = 100_000;

/// Ten bytes come between two extents, and go again, while these are read and written as one.
async fn written_and_punched(
    rt: &Rt,
    target: &Target,
    id: ObjectId,
    (after, for_): (u64, u64),
) -> Result<(), StoreError> {
    // Three groups; when the first is one, there are few enough that what is written then is not merged with the third by its writer.
    for offset in [FAR, FAR + 20, FAR / 2, FAR / 2 + 10, 0, 10] {
        target.write(id, offset, &[1; 10]).await?;
    }
    let merging = {
        let (target, done) = (target.clone(), rt::sync::Notify::new());
        let done = Arc::new(done);
        let told = done.clone();
        rt.spawn(async move {
            target.write(id, 20, &[1; 10]).await.expect("there is room");
            told.notify_one();
        });
        done
    };
    rt.sleep(Duration::from_micros(after)).await;
    target.write(id, FAR + 10, &[2; 10]).await?;
    rt.sleep(Duration::from_micros(for_)).await;
    target.punch(id, FAR + 10, FAR + 20).await?;
    merging.notified().await;
    assert_eq!(target.read(id, FAR + 10, 10).await?, [0; 10], "after {after} us, for {for_} us");
    Ok(())
}

#[test]
fn what_was_punched_meanwhile_does_not_come_back() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    sim.run(async {
        Store::format(&rt, PATH, &label()).await?;
        let target = Target::open(&rt, Limits { neighbours_max: 3, ..SMALL }).await?;
        sim.handle().set_disk_speed(NODE, 20 << 20);
        let mut number = 0;
        for after in 0..20 {
            for for_ in 0..20 {
                number += 1;
                written_and_punched(&rt, &target, id(number), (after * 40, for_ * 40)).await?;
            }
        }
        target.close().await
    })
    .expect("no operation fails");
}

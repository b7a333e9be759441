//! Small extents that are merged, and parts of a write that are joined, while others write.

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

/// Ten bytes come between two parts, and go again, while these are written as one.
async fn joined_and_punched(
    rt: &Rt,
    target: &Target,
    id: ObjectId,
    (after, for_): (u64, u64),
) -> Result<(), StoreError> {
    target.write(id, 0, &[1; 10]).await?;
    let joining = {
        let (target, done) = (target.clone(), Arc::new(rt::sync::Notify::new()));
        let told = done.clone();
        rt.spawn(async move {
            let part = |start| (start, vec![Bytes::from_static(&[3; 10])]);
            let written =
                target.objects.write_parts(id, vec![part(0), part(20)], at(1), None, nothing()).await;
            written.expect("there is room");
            told.notify_one();
        });
        done
    };
    rt.sleep(Duration::from_micros(after)).await;
    target.write(id, 10, &[2; 10]).await?;
    rt.sleep(Duration::from_micros(for_)).await;
    target.punch(id, 10, 20).await?;
    joining.notified().await;
    assert_eq!(target.read(id, 10, 10).await?, [0; 10], "after {after} us, for {for_} us");
    assert_eq!(target.read(id, 20, 20).await?, [3; 10]);
    Ok(())
}

/// The bytes between the parts are those of the extents that are looked for at the commit: both are looked up as of one moment. (Here nothing
/// comes between two looks without an `await`; between threads it does.)
#[test]
fn what_was_punched_meanwhile_does_not_come_back_with_a_joined_write() {
    let sim = Sim::new(Options::seed(1));
    let rt = sim.rt(NODE);
    sim.run(async {
        let target = Target::make(&rt).await?;
        sim.handle().set_disk_speed(NODE, 20 << 20);
        let mut number = 0;
        for after in 0..20 {
            for for_ in 0..20 {
                number += 1;
                joined_and_punched(&rt, &target, id(number), (after * 20, for_ * 20)).await?;
            }
        }
        target.close().await
    })
    .expect("no operation fails");
}

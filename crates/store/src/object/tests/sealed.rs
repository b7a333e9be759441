//! Seals.

use super::super::Sealing;
use super::*;

const LAYOUT: Fid = Fid { seq: Fid::SEQ_NORMAL_START, oid: 1, ver: 0 };

fn is_done(sealing: Sealing) -> bool {
    matches!(sealing, Sealing::Done(_))
}

#[test]
fn a_seal_outlives_a_restart_and_goes_with_a_greater_generation() {
    check(async |rt, target| {
        target.write(id(1), 0, b"data").await?;
        assert!(is_done(target.objects.seal(LAYOUT, 3, || true, nothing())?));
        assert!(!is_done(target.objects.seal(LAYOUT, 3, || true, nothing())?), "it is sealed");
        assert_eq!(target.findings().await?, Vec::<String>::new());
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        assert!(target.objects.is_sealed(LAYOUT)?);
        assert!(!target.objects.is_sealed(id(2).layout)?);
        assert!(!is_done(target.objects.unseal(LAYOUT, 3, nothing())?));
        assert!(target.objects.is_sealed(LAYOUT)?);
        assert!(is_done(target.objects.unseal(LAYOUT, 4, nothing())?));
        assert!(is_done(target.objects.unseal(LAYOUT, 4, nothing())?), "twice does no harm");
        assert!(!target.objects.is_sealed(LAYOUT)?);
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        assert!(!target.objects.is_sealed(LAYOUT)?);
        assert_eq!(target.read(id(1), 0, 10).await?, b"data");
        target.close().await
    });
}

#[test]
fn who_may_not_seal_leaves_nothing_behind() {
    check(async |rt, target| {
        let objects = target.objects.clone();
        let looked = || {
            assert!(objects.is_sealed_now(LAYOUT), "what comes now is refused already");
            false
        };
        assert!(!is_done(target.objects.seal(LAYOUT, 0, looked, nothing())?));
        assert!(!target.objects.is_sealed(LAYOUT)?);
        drop(objects);
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        assert!(!target.objects.is_sealed(LAYOUT)?);
        target.close().await
    });
}

/// A seal that was taken away before it was committed was not in memory any more, but on disk, and was there again after the next start.
#[test]
fn a_seal_that_is_taken_away_meanwhile_is_not_made() {
    check(async |rt, target| {
        let objects = target.objects.clone();
        let looked = || {
            assert!(is_done(objects.unseal(LAYOUT, 4, nothing()).expect("nothing fails")));
            true
        };
        assert!(!is_done(target.objects.seal(LAYOUT, 3, looked, nothing())?));
        assert!(!target.objects.is_sealed(LAYOUT)?);
        drop(objects);
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        assert!(!target.objects.is_sealed(LAYOUT)?);
        assert!(is_done(target.objects.seal(LAYOUT, 3, || true, nothing())?));
        target.close().await
    });
}

#[test]
fn a_seal_goes_with_its_objects() {
    check(async |rt, target| {
        target.write(id(1), 0, b"data").await?;
        target.objects.seal(LAYOUT, 0, || true, nothing())?;
        target.destroy(&[id(1)]).await?;
        assert!(matches!(target.objects.is_sealed(LAYOUT), Err(StoreError::Gone)));
        assert!(matches!(target.objects.seal(LAYOUT, 0, || true, nothing()), Err(StoreError::Gone)));
        let (from, until) = super::super::keys::seals();
        assert_eq!(target.store.scan(&from, &until, 10)?.len(), 0);
        target.close().await?;
        let target = Target::open(&rt, Limits::default()).await?;
        assert!(matches!(target.objects.is_sealed(LAYOUT), Err(StoreError::Gone)));
        target.close().await
    });
}

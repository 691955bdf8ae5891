; An inductive invariant of the machine keepalive, checked anew on every run by every solver.
; fingerprint: 742a5da4be2ff05b073bce1df71ca378
; proves: K9a by 1-induction
; proves: K9b by 1-induction
; proves: K10 by 1-induction
; proves: K10a by 1-induction
; proves: K11a by 1-induction
; proves: L1 by 1-induction
; proves: L2 by 1-induction
; proves: L3 by 1-induction
; proves: L4 by 1-induction
; proves: L5 by 1-induction
; proves: L6 by 1-induction
; proves: L7 by 1-induction
; proves: L8 by 1-induction
; proves: L8a by 1-induction
; proves: L9 by 1-induction
; proves: L10 by 1-induction
; proves: K1 by 1-induction
; proves: K1a by 1-induction
; proves: K2 by 1-induction
; proves: K3 by 1-induction
; proves: K3a by 1-induction
; proves: K3b by 1-induction
; proves: K3c by 1-induction
; proves: K4 by 1-induction
; proves: K5 by 1-induction
; proves: K5a by 1-induction
; proves: K6 by 1-induction
; proves: K7 by 1-induction
; proves: K8 by 1-induction
; proves: K8a by 1-induction
; proves: K9 by 1-induction
; proves: K11c by 1-induction
; proves: K11d by 1-induction
; proves: K11e by 1-induction
; proves: K11b by 1-induction
(define-fun inv ((|policy.ladder_ms[0]| Int) (|policy.ladder_ms[1]| Int) (|policy.ladder_ms[2]| Int) (|policy.ladder_ms[3]| Int) (|policy.plateau_ms| Int) (|policy.lead_ms| Int) (|policy.evidence_at| Int) (|policy.wedge_ms| Int) (|policy.jitter_ms| Int) (|record.revivals| Int) (|record.last_revival_at_ms| Int) (|record.version| Int) (|record.armed_at_ms| Int) (|record.lifetime| Int) (|record.epoch| Int) (|record.lifetime_total| Int) (|record.cleared_by| Int) (|alarm_at_ms| Int) (|owed[0]| Bool) (|owed[1]| Bool) (|reported_version| Int) (|reported_epoch| Int) (|reported_facts| Int) (|lifetime| Int) (|version| Int) (|alive| Bool) (|running_since_ms[0]| Int) (|running_since_ms[1]| Int) (|clean_seen| Bool) (|failed_seen| Bool) (|reviving| Int) (|pass_count| Int) (|confirm_at_ms| Int) (|stopping| Bool) (|now_ms| Int) (|ghost.revivals| Int) (|ghost.started_at_ms| Int) (|ghost.looked_at_ms| Int) (|ghost.settled_clean| Bool) (|ghost.reports| Int) (|ghost.alarm_lost| Bool) (|ghost.losses| Int) (|ghost.troubled_late| Bool)) Bool
  (let ((t!0 (= |reported_version| |record.version|))) (let ((t!1 (= |reported_epoch| |record.epoch|))) (let ((t!2 (not |alive|))) (let ((t!3 (= |reviving| 0))) (let ((t!4 (not t!3))) (let ((t!5 (= |running_since_ms[0]| (- 1)))) (let ((t!6 (= |running_since_ms[1]| (- 1)))) (let ((t!7 (and t!5 t!6))) (let ((t!8 (= |record.armed_at_ms| (- 1)))) (let ((t!9 (not t!8))) (let ((t!10 (= |record.revivals| 2))) (let ((t!11 (= |record.revivals| 3))) (let ((t!12 (= |record.revivals| 4))) (let ((t!13 (< 4 |record.revivals|))) (let ((t!14 (ite t!13 |policy.plateau_ms| |policy.ladder_ms[3]|))) (let ((t!15 (ite t!12 t!14 (ite t!13 |policy.plateau_ms| |policy.ladder_ms[2]|)))) (let ((t!16 (ite t!11 t!15 (ite t!12 t!14 (ite t!13 |policy.plateau_ms| |policy.ladder_ms[1]|))))) (let ((t!17 (+ |record.last_revival_at_ms| (ite (= |record.revivals| 1) (ite t!10 t!16 (ite t!11 t!15 (ite t!12 t!14 (ite t!13 |policy.plateau_ms| |policy.ladder_ms[0]|)))) (ite t!10 t!16 (ite t!11 t!15 (ite t!12 t!14 (ite t!13 |policy.plateau_ms| |policy.lead_ms|)))))))) (let ((t!18 (+ t!17 |policy.jitter_ms|))) (let ((t!19 (and (< 0 |record.revivals|) (<= |record.armed_at_ms| t!18)))) (let ((t!20 (ite t!8 t!9 (or (<= |record.armed_at_ms| (+ (ite (<= |ghost.looked_at_ms| |running_since_ms[1]|) |running_since_ms[1]| |ghost.looked_at_ms|) |policy.lead_ms|)) t!19)))) (let ((t!21 (and t!5 t!20))) (let ((t!22 (ite t!8 t!9 (or (<= |record.armed_at_ms| (+ (ite (<= |ghost.looked_at_ms| |running_since_ms[0]|) |running_since_ms[0]| |ghost.looked_at_ms|) |policy.lead_ms|)) t!19)))) (let ((t!23 (ite t!6 (and t!22 t!6) (and t!22 t!20)))) (let ((t!24 (not (or (not t!5) (not t!6))))) (let ((t!25 (= |alarm_at_ms| |record.armed_at_ms|))) (let ((t!26 (= |record.lifetime| |lifetime|))) (let ((t!27 (not (or |owed[0]| |owed[1]|)))) (let ((t!28 (<= |record.last_revival_at_ms| |now_ms|))) (let ((t!29 (<= |record.lifetime| |lifetime|))) (let ((t!30 (<= |ghost.looked_at_ms| |now_ms|))) (let ((t!31 (<= 0 |now_ms|))) (let ((t!32 (<= 0 |record.last_revival_at_ms|))) (let ((t!33 (<= 0 |running_since_ms[1]|))) (let ((t!34 (<= |running_since_ms[1]| |now_ms|))) (let ((t!35 (<= 0 |running_since_ms[0]|))) (let ((t!36 (<= |running_since_ms[0]| |now_ms|))) (let ((t!37 (= |record.revivals| 0))) (let ((t!38 (and t!26 (= |record.revivals| |pass_count|)))) (let ((t!39 (<= 1 |pass_count|))) (let ((t!40 (not t!26))) (let ((t!41 (or t!40 t!37 (= |pass_count| |record.revivals|)))) (let ((t!42 (not |clean_seen|))) (let ((t!43 (+ |ghost.looked_at_ms| |policy.lead_ms|))) (and (<= 0 |record.cleared_by|) (< |record.cleared_by| 4) (<= 0 |reviving|) (< |reviving| 4) (<= |ghost.reports| 1) (or (<= |record.revivals| 4) (and t!0 t!1)) (or t!2 t!4 (ite t!5 (ite t!6 t!7 t!21) t!23)) (or t!2 t!4 t!24 t!25 |ghost.alarm_lost|) (ite t!26 (or t!27 t!9) (or t!27 t!26)) (<= 0 |record.revivals|) (<= 0 |record.epoch|) (ite t!28 (ite t!5 (ite t!6 (and t!29 t!30 t!5 t!6 t!31 t!32) (ite t!33 (and t!29 t!30 t!5 t!34 t!31 t!32) (and t!29 t!30 t!5 t!33 t!31 t!32))) (ite t!35 (ite t!6 (and t!29 t!30 t!36 t!6 t!31 t!32) (ite t!33 (and t!29 t!30 t!36 t!34 t!31 t!32) (and t!29 t!30 t!36 t!33 t!31 t!32))) (ite t!6 (and t!29 t!30 t!35 t!6 t!31 t!32) (ite t!33 (and t!29 t!30 t!35 t!34 t!31 t!32) (and t!29 t!30 t!35 t!33 t!31 t!32))))) (and t!29 t!28)) (or t!8 (and (<= 0 |record.armed_at_ms|) (or t!37 (<= t!17 |record.armed_at_ms|)))) (= |record.revivals| |ghost.revivals|) (or t!37 (= |record.last_revival_at_ms| |ghost.started_at_ms|)) (ite t!3 (= |pass_count| 0) (ite t!38 (and t!39 (ite t!8 t!9 t!41)) (and t!39 t!41))) (ite t!1 (and t!0 t!1 (<= |policy.evidence_at| |record.revivals|) (= |ghost.reports| 1)) (and (< |reported_epoch| |record.epoch|) (= |ghost.reports| 0))) (or t!42 t!37 |ghost.settled_clean|) (or |alive| (and t!24 t!3 t!42 (not |failed_seen|) (not |stopping|))) (ite t!5 (ite t!6 t!7 (ite t!26 t!21 (and t!5 t!26))) (ite t!26 t!23 (ite t!6 (and t!26 t!6) t!26))) (or t!3 (not t!38) (<= |record.armed_at_ms| (ite (<= t!43 t!18) t!18 t!43))) (ite (= |reviving| 1) (or t!2 t!40 t!38 t!25 |ghost.alarm_lost|) (or t!2 t!40 t!25 |ghost.alarm_lost|)) (or t!2 t!40 (= |record.version| |version|))))))))))))))))))))))))))))))))))))))))))))))))

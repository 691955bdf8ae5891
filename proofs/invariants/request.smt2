; An inductive invariant of the machine request, checked anew on every run by every solver.
; fingerprint: 6e3b63c27e0c04c9fcd34d92a07a14e2
; proves: Q2 by 1-induction
; proves: Q3a by 1-induction
; proves: Q4a by 1-induction
; proves: Q5a by 1-induction
; proves: Q7a by 1-induction
; proves: Q7b by 1-induction
; proves: R1a by 1-induction
; proves: R2 by 1-induction
; proves: R3 by 1-induction
; proves: L1 by 1-induction
; proves: L2 by 1-induction
; proves: L3 by 1-induction
; proves: L4 by 1-induction
; proves: L5 by 1-induction
; proves: L6 by 1-induction
; proves: L7 by 1-induction
; proves: L8 by 1-induction
; proves: Q1 by 1-induction
; proves: Q2a by 1-induction
; proves: Q3 by 1-induction
; proves: Q3b by 1-induction
; proves: Q3c by 1-induction
; proves: Q4 by 1-induction
; proves: Q4b by 1-induction
; proves: Q5b by 1-induction
; proves: Q6 by 1-induction
; proves: R1 by 1-induction
; proves: R4 by 1-induction
; proves: R5 by 1-induction
; proves: R6 by 1-induction
(define-fun inv ((|policy.horizon_ms| Int) (|policy.floor_ms| Int) (|policy.max_attempts| Int) (|policy.retry_backoff_ms| Int) (|policy.retry_backoff_max_ms| Int) (|request.status| Int) (|request.reason| Int) (|request.expires_at_ms| Int) (|request.timer_at_ms| Int) (|request.attempts| Int) (|request.owner| Int) (|request.retry_at_ms| Int) (|request.backoff_ms| Int) (|request.told| Int) (|incarnation| Int) (|alive| Bool) (|running| Bool) (|deadline_at_ms| Int) (|now_ms| Int) (|ghost.horizon_at_ms| Int) (|ghost.settlements| Int) (|ghost.dials| Int) (|ghost.failed_at_ms| Int) (|ghost.wait_ms| Int)) Bool
  (let ((t!0 (= |request.status| 3))) (let ((t!1 (= |request.status| 4))) (let ((t!2 (or (= |request.status| 2) t!0 t!1))) (let ((t!3 (not |running|))) (let ((t!4 (= |request.status| 0))) (let ((t!5 (= |request.status| 1))) (let ((t!6 (= |request.timer_at_ms| |request.expires_at_ms|))) (let ((t!7 (= |request.told| 0))) (let ((t!8 (not t!4))) (let ((t!9 (= |ghost.wait_ms| 0))) (let ((t!10 (= |ghost.failed_at_ms| 0))) (let ((t!11 (= |request.retry_at_ms| 0))) (let ((t!12 (+ |ghost.wait_ms| |ghost.wait_ms|))) (let ((t!13 (<= 0 |ghost.settlements|))) (let ((t!14 (= |request.expires_at_ms| 0))) (let ((t!15 (= |request.backoff_ms| 0))) (and (<= 0 |request.status|) (< |request.status| 5) (<= 0 |request.reason|) (< |request.reason| 4) (<= 0 |request.told|) (< |request.told| 5) (ite t!2 (= |ghost.settlements| 1) (= |ghost.settlements| 0)) (or t!3 (<= |ghost.horizon_at_ms| |deadline_at_ms|)) (or t!4 (= |request.expires_at_ms| |ghost.horizon_at_ms|)) (ite t!5 t!6 (not t!5)) (ite t!1 (or (= |request.reason| 2) (= |request.reason| 3)) (ite t!0 (= |request.reason| 1) (= |request.reason| 0))) (or t!7 (and (= |request.told| |request.status|) t!2)) (<= |request.retry_at_ms| (+ |ghost.failed_at_ms| |policy.retry_backoff_max_ms|)) (<= |ghost.dials| |policy.max_attempts|) (ite t!0 (<= |policy.max_attempts| |ghost.dials|) (not t!0)) (<= 0 |request.owner|) (<= |request.owner| |incarnation|) (<= 0 |incarnation|) (ite |alive| (<= 1 |incarnation|) t!3) (ite |running| (and t!5 (<= 1 |request.attempts|) (= |deadline_at_ms| |request.expires_at_ms|)) (= |deadline_at_ms| 0)) (= |request.attempts| |ghost.dials|) (<= 0 |ghost.dials|) (ite t!4 (= |ghost.dials| 0) t!8) (<= 0 |now_ms|) (<= 0 |ghost.failed_at_ms|) (<= |ghost.failed_at_ms| |now_ms|) (or t!4 (and (<= |ghost.horizon_at_ms| (+ |now_ms| |policy.horizon_ms|)) (<= |policy.horizon_ms| |ghost.horizon_at_ms|))) (ite t!5 (and t!6 (<= 1 |request.timer_at_ms|)) (= |request.timer_at_ms| 0)) (ite t!4 (and t!9 t!10 t!11) (ite t!9 (and t!11 t!10 (= |request.backoff_ms| |policy.retry_backoff_ms|)) (and (<= |policy.retry_backoff_ms| |ghost.wait_ms|) (<= |ghost.wait_ms| |policy.retry_backoff_max_ms|) (= |request.retry_at_ms| (+ |ghost.failed_at_ms| |ghost.wait_ms|)) (= |request.backoff_ms| (ite (<= t!12 |policy.retry_backoff_max_ms|) t!12 |policy.retry_backoff_max_ms|))))) (ite t!7 t!13 (and t!2 t!13)) (ite t!14 (ite t!15 (ite t!4 (= |request.owner| 0) t!8) (ite t!4 t!15 t!8)) (ite t!4 t!14 t!8))))))))))))))))))))

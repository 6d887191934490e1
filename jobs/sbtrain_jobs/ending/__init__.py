"""Why and how an attempt ends: notice, cause, grace, verdict, requeue."""

-- Schema vedur: what only we have. The schema itself and vedur.component are made by the installer.

comment on schema vedur is 'Vedur: staging, progress, quarantine and settings of its own';
comment on table vedur.component is 'which schemas Vedur installed here, and which version of them';

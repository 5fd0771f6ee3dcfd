# ATTACK WORKED: edit_base_through_other_processes
# ATTACK WORKED: edit_base_through_other_processes
# ATTACK WORKED: edit_base_through_other_processes
# ATTACK WORKED: edit_base_through_other_processes
# ATTACK WORKED: edit_base_through_other_processes
# ATTACK WORKED: edit_base_through_other_processes
